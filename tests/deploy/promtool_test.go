package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// promtool runs Prometheus's own tool. Prometheus's parser as a package would raise the Go version of the module tests.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: apt-get install prometheus")
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPrometheusAcceptsTheRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(root, "deploy/prometheus-rules.yml"))
}

func TestAlertsFireForTheirTroubleOnly(t *testing.T) {
	promtool(t, "test", "rules", filepath.Join(root, "deploy/prometheus-rules-test.yml"))
}

// Grafana replaces its variables; Prometheus has to understand what is left.
func TestPrometheusUnderstandsTheExpressionsOfTheDashboard(t *testing.T) {
	type record struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var records []record
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	for _, p := range grafana(t).Panels {
		for _, target := range p.Targets {
			name := "panel:" + strings.Map(letters, p.Title+target.RefID)
			records = append(records, record{Record: name, Expr: variables.Replace(target.Expr)})
		}
	}
	file, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": records}}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "rules.yml") // JSON is YAML
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", name)
}

// letters drops what a name in Prometheus cannot have.
func letters(r rune) rune {
	if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
		return r
	}
	return -1
}

// A test of an alert shows when it fires, and something like it for which it does not.
func TestEachAlertHasATestThatItFiresAndOneThatItDoesNot(t *testing.T) {
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name   string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus-rules-test.yml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, rests := make(map[string]bool), make(map[string]bool)
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Expect) > 0 {
				fires[a.Name] = true
			} else {
				rests[a.Name] = true
			}
		}
	}
	for _, r := range rules(t) {
		if !fires[r.Alert] || !rests[r.Alert] {
			t.Errorf("%s: tested that it fires: %v, that it does not: %v", r.Alert, fires[r.Alert], rests[r.Alert])
		}
	}
}
