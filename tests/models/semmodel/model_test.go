package semmodel

import (
	"flag"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

func TestMain(m *testing.M) { leak.Main(m) }

var full = flag.Bool("model.full", false, "search the large scenarios: a minute, and 1 GB of memory")

func TestEveryInterleavingKeepsTheRules(t *testing.T) {
	scenarios := small
	if modelsearch.Race {
		scenarios = underRace
	}
	if *full {
		scenarios = large
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			m := model{scenario: s}
			r := m.search()
			t.Logf("%d states, %d steps", r.States, r.Steps)
			if r.Wrong != "" {
				t.Error(r.Wrong)
			}
		})
	}
}

// Two hold, and the lease of one is revoked. Who queues now waits for the other one, and may hold when that has
// released, before the first one is told. Guides and godoc say that LockDelay is for those who waited then.
func TestWhoQueuesAfterARevocationDoesNotDelayForIt(t *testing.T) {
	m := model{scenario: with(pair, revoking(1))}
	if r := m.search(); r.Wrong != "" || m.late == 0 {
		t.Errorf("%d states of %d, %s", m.late, r.States, r.Wrong)
	}
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	for i, s := range broken {
		if modelsearch.Race && i%5 != 0 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			m := model{scenario: s}
			r := m.search()
			t.Logf("%d states", r.States)
			if !strings.HasPrefix(r.Wrong, s.expect) {
				t.Errorf("found %q, want a violation %q", r.Wrong, s.expect)
			}
		})
	}
}
