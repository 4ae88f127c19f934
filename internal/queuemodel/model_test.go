package queuemodel

import (
	"flag"
	"strings"
	"testing"
)

var full = flag.Bool("model.full", false, "search the large scenarios, too: some three minutes, and 2 GB of memory")

func search(t *testing.T, s scenario) string {
	m := &model{scenario: s}
	g, wrong := m.search()
	t.Logf("%d states, %d steps, a newcomer beside a revoked holder in %d states", len(g.parents), len(g.to), m.overlaps)
	return wrong
}

// underRace are searched under the race detector, which makes a search ten times slower and has nothing to find: one
// goroutine searches. "go test ./..." searches all small ones.
var underRace = []scenario{three, handingOn, keyDeleted, sweptAlone, readers, minHold, removed, clean}

func TestEveryInterleavingKeepsTheRules(t *testing.T) {
	scenarios := small
	if race {
		scenarios = underRace
	}
	if *full {
		scenarios = append(scenarios, large...)
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	for i, s := range broken {
		if race && i%4 != 0 {
			continue
		}
		if len(s.attempts) > 3 && !*full && s.broken != writersAreNotRemembered {
			continue // as large as the large ones
		}
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); !strings.HasPrefix(wrong, s.expect) {
				t.Errorf("found %q, want a violation %q", wrong, s.expect)
			}
		})
	}
}
