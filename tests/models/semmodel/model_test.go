package semmodel

import (
	"flag"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

func TestMain(m *testing.M) { leak.Main(m) }

var full = flag.Bool("model.full", false, "search the large scenarios: minutes, and 2 GB of memory")

func search(t *testing.T, s scenario, expect string) {
	t.Run(s.name, func(t *testing.T) {
		m := model{scenario: s}
		r := m.search()
		t.Logf("%d states, %d steps", r.States, r.Steps)
		if !strings.HasPrefix(r.Wrong, expect) || expect == "" && r.Wrong != "" {
			t.Errorf("found %q, want a violation %q", r.Wrong, expect)
		}
	})
}

func TestEveryInterleavingKeepsTheRules(t *testing.T) {
	scenarios := small
	if modelsearch.Race {
		scenarios = underRace
	}
	if *full {
		scenarios = large
	}
	for _, s := range scenarios {
		search(t, s, "")
		if *full || !modelsearch.Race {
			search(t, anyone(s), "")
		}
	}
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	for i, s := range broken {
		if modelsearch.Race && i%10 != 0 {
			continue
		}
		search(t, s, s.expect)
	}
}

func TestTooManyMayHoldWhereDocumentsSaySo(t *testing.T) {
	for _, s := range exceptions {
		search(t, s, "limit")
	}
}
