package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-go/holdfast"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

type rule struct {
	Alert       string
	Expr        string
	Annotations map[string]string
}

// rules returns the alerts of deploy/prometheus-rules.yml.
func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus-rules.yml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("deploy/prometheus-rules.yml has no rules")
	}
	return all
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	Targets     []struct{ RefID, Expr string }
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ Type, UID string }
	Options     struct {
		Legend  struct{ Calcs []string } // nil: Grafana's types require the field
		Tooltip struct{ Mode string }
	}
}

type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

// grafana returns the dashboard in deploy/grafana.json.
func grafana(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// expressions returns the PromQL expressions of both files, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, r := range rules(t) {
		all["alert "+r.Alert] = r.Expr
	}
	d := grafana(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title+" "+target.RefID] = target.Expr
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			all["variable "+v.Name] = v.Definition
		}
	}
	return all
}

var (
	identifier = regexp.MustCompile(`\bholdfast_\w+`)
	selector   = regexp.MustCompile(`\b(holdfast_\w+)(?:\{([^}]*)\})?`)
	matcher    = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

func TestDashboardAndAlertsUseExportedMetricsAndLabels(t *testing.T) {
	metrics := exported(t)
	for where, expr := range expressions(t) {
		groups := grouping.FindAllStringSubmatch(expr, -1)
		found := false
		for _, s := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1) {
			name := s[1]
			labels := metrics[name]
			if labels == nil {
				if !strings.HasPrefix(where, "variable") || !metrics.has(name) {
					t.Errorf("%s: no metric %s is exported", where, name)
				}
				continue
			}
			found = true
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				checkMatcher(t, where, name, labels, m[1], m[3])
			}
			for _, g := range groups {
				for by := range strings.SplitSeq(g[1], ",") {
					if by = strings.TrimSpace(by); by != "job" && by != "instance" && !labels[by] {
						t.Errorf("%s: %s has no label %s to group by", where, name, by)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s: no metric in %s", where, expr)
		}
	}
}

// checkMatcher reports a label that a metric does not have, or a value that the label never has.
func checkMatcher(t *testing.T, where, metric string, labels map[string]bool, name, values string) {
	t.Helper()
	if name == "job" || name == "instance" { // Prometheus adds them
		return
	}
	if !labels[name] {
		t.Errorf("%s: %s has no label %s", where, metric, name)
		return
	}
	for value := range strings.SplitSeq(values, "|") {
		if !slices.Contains(valuesOf(t, metric, name), value) {
			t.Errorf("%s: %s never has %s=%q", where, metric, name, value)
		}
	}
}

// valuesOf returns the values that a label of a metric may have.
func valuesOf(t *testing.T, metric, label string) (values []string) {
	t.Helper()
	switch label {
	case "holdfast_kind":
		return []string{"lock", "election", "shard", "session"}
	case "holdfast_cause":
		for cause := holdfast.CauseExpired; !strings.HasPrefix(cause.String(), "Cause("); cause++ {
			values = append(values, cause.String())
		}
		return values
	}
	for _, d := range documented(t) {
		if metric == d.exported || slices.Contains([]string{d.exported + "_count", d.exported + "_bucket"}, metric) {
			for _, m := range regexp.MustCompile("`([a-z ]+)`").FindAllStringSubmatch(d.row, -1) {
				values = append(values, m[1])
			}
		}
	}
	return values
}

func TestDashboardIsWellFormed(t *testing.T) {
	ids, titles := make(map[int]bool), make(map[string]bool)
	for _, p := range grafana(t).Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("panel %q: id %d is not unique", p.Title, p.ID)
		}
		if p.Title == "" || titles[p.Title] {
			t.Errorf("panel %d: title %q is not unique", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.Type == "row" {
			continue
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if target.Expr == "" || refs[target.RefID] {
				t.Errorf("panel %q: target %q is empty or not unique", p.Title, target.RefID)
			}
			refs[target.RefID] = true
		}
		if len(refs) == 0 || p.Description == "" {
			t.Errorf("panel %q has no target or no description", p.Title)
		}
	}
}

// The fields are those that @grafana/schema 13.2.3 requires; the grid of a dashboard has 24 columns.
func TestPanelsHaveWhatGrafanasTypesRequireAndDoNotOverlap(t *testing.T) {
	taken := make(map[[2]int]string)
	for _, p := range grafana(t).Panels {
		at := p.GridPos
		if at.W <= 0 || at.H <= 0 || at.X < 0 || at.X+at.W > 24 {
			t.Errorf("panel %q does not fit the grid: %+v", p.Title, at)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("panels %q and %q overlap", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "timeseries" && (p.Options.Legend.Calcs == nil || p.Options.Tooltip.Mode == "" ||
			p.Datasource.Type != "prometheus" || p.Datasource.UID == "") {
			t.Errorf("panel %q lacks legend.calcs, tooltip.mode or its data source", p.Title)
		}
	}
}

func TestGuideExplainsEachPanelAndAlert(t *testing.T) {
	guide := read(t, "docs/dashboards.md")
	rows := regexp.MustCompile("(?m)^\\| (?:`(Holdfast\\w+)`|\\*\\*([^*]+)\\*\\*)").FindAllStringSubmatch(guide, -1)
	var got, want []string
	for _, row := range rows {
		got = append(got, row[1]+row[2])
	}
	for _, p := range grafana(t).Panels {
		if p.Type != "row" {
			want = append(want, p.Title)
		}
	}
	for _, r := range rules(t) {
		want = append(want, r.Alert)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("docs/dashboards.md explains\n%q\nthe files have\n%q", got, want)
	}

	metrics, labels := exported(t), make(map[string]bool)
	for _, of := range metrics {
		for label := range of {
			labels[label] = true
		}
	}
	for _, name := range identifier.FindAllString(guide, -1) {
		if !metrics.has(name) && !labels[name] {
			t.Errorf("docs/dashboards.md names %s, which is not exported", name)
		}
	}
}
