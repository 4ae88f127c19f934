package quietmodel

import (
	"flag"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

func TestMain(m *testing.M) { leak.Main(m) }

var full = flag.Bool("model.full", false, "search the large scenarios: ten seconds")

func search(t *testing.T, s scenario) string {
	m := model{scenario: s}
	r := m.search()
	t.Logf("%d states, %d steps", r.States, r.Steps)
	return r.Wrong
}

func TestEveryInterleavingKeepsTheRules(t *testing.T) {
	scenarios := small
	if *full {
		scenarios = large
	}
	for i, s := range scenarios {
		if modelsearch.Race && i%4 != 2 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

func TestWhatIsNotPromisedHappens(t *testing.T) { expectEach(t, notPromised) }

func TestEachBrokenRuleIsNoticed(t *testing.T) { expectEach(t, broken) }

func expectEach(t *testing.T, scenarios []scenario) {
	for i, s := range scenarios {
		if modelsearch.Race && i%4 != 2 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); wrong == "" || !strings.HasPrefix(wrong, s.expect) {
				t.Errorf("found %q, want a violation %q", wrong, s.expect)
			}
		})
	}
}
