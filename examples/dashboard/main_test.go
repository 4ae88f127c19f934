package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestEachPanelAndAlertHasSamples(t *testing.T) {
	t.Parallel()
	p := demotest.Start(t, "--listen", "127.0.0.1:0", "--ttl", "2s", "--lasts", "50ms", "--rounds", "1")
	var urls []string
	for range 3 {
		urls = append(urls, p.Await(t, `has its metrics at (http://\S+)`)[1])
	}
	p.Await(t, "had each trouble")
	// Gauges of what is held and what waits have samples while something is, and workers go on.
	missing := append(selectors(t, panels(t)), selectors(t, read(t, "../../deploy/prometheus-rules.yml"))...)
	for ctx := within(t, time.Minute); len(missing) > 0 && ctx.Err() == nil; {
		var samples []sample
		for _, url := range urls {
			samples = append(samples, scrape(t, url)...)
		}
		missing = slices.DeleteFunc(missing, func(s selector) bool { return slices.ContainsFunc(samples, s.matches) })
	}
	p.Signal(t, os.Interrupt)
	stdout, stderr, code := p.Wait()
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	demotest.CheckShown(t, stdout, true)

	for _, s := range missing {
		t.Errorf("no sample of %s", s.text)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestPrometheusAcceptsItsConfiguration(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool: apt-get install prometheus")
	}
	out, err := exec.CommandContext(t.Context(), promtool, "check", "config", "prometheus.yml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// panels returns the expressions of the dashboard.
func panels(t *testing.T) string {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, "../../deploy/grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all.WriteString(target.Expr + "\n")
		}
	}
	return all.String()
}

type sample struct {
	metric string
	labels map[string]string
}

func scrape(t *testing.T, url string) (samples []sample) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(string(text), -1) {
		s := sample{m[1], make(map[string]string)}
		for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[2]
		}
		samples = append(samples, s)
	}
	return samples
}

// selector is a metric in an expression, and what its labels must be.
type selector struct {
	text   string
	metric string
	labels [][]string // whole, label, operator, value
}

// selectors returns those in the expressions, without repetitions.
func selectors(t *testing.T, expressions string) (all []selector) {
	t.Helper()
	expressions = regexp.MustCompile(`\bby \([^)]*\)`).ReplaceAllString(expressions, "")
	seen := make(map[string]bool)
	for _, m := range regexp.MustCompile(`[^.\w](holdfast_\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expressions, -1) {
		if s := (selector{text: strings.TrimSpace(m[0][1:]), metric: m[1]}); !seen[s.text] {
			seen[s.text] = true
			s.labels = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`).FindAllStringSubmatch(m[2], -1)
			all = append(all, s)
		}
	}
	if len(all) < 5 {
		t.Fatalf("found only %d selectors", len(all))
	}
	return all
}

func (s selector) matches(of sample) bool {
	return s.metric == of.metric && !slices.ContainsFunc(s.labels, func(l []string) bool {
		if strings.HasPrefix(l[3], "$") { // a variable of the dashboard: job or instance
			return false
		}
		equal := of.labels[l[1]] == l[3]
		if strings.HasSuffix(l[2], "~") {
			equal = regexp.MustCompile(`^(?:` + l[3] + `)$`).MatchString(of.labels[l[1]])
		}
		return equal == strings.HasPrefix(l[2], "!")
	})
}
