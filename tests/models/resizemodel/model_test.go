package resizemodel

import (
	"flag"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

func TestMain(m *testing.M) { leak.Main(m) }

var full = flag.Bool("model.full", false, "search the large scenarios: some minutes")

var (
	barrier  = scenario{name: "barrier", from: 1, to: 2, barrier: true, left: budget{revokes: 1, lates: 1}}
	together = scenario{name: "together", from: 1, to: 2, left: budget{revokes: 1, lates: 1}}
)

func breaking(s scenario, r rule, expect string) scenario {
	s.broken, s.expect, s.name = r, expect, string(r)+", in: "+s.name
	return s
}

// halving is the same with the numbers exchanged.
func halving(s scenario) scenario {
	s.from, s.to, s.name = s.to, s.from, s.name+", halving"
	return s
}

// departing has an operator who goes away.
func departing(s scenario) scenario {
	s.left, s.name = budget{revokes: 1, departs: 1}, s.name+", the operator goes away"
	return s
}

// calm is one in which nothing goes wrong, with three members.
func calm(s scenario) scenario {
	s.members, s.left, s.name = 3, budget{}, s.name+", three members"
	return s
}

func search(t *testing.T, s scenario) string {
	s.members = max(2, s.members)
	m := model{scenario: s}
	r := m.search()
	t.Logf("%d states, %d steps", r.States, r.Steps)
	return r.Wrong
}

func TestEveryInterleavingKeepsTheRules(t *testing.T) {
	scenarios := []scenario{barrier, departing(barrier), together, departing(together)}
	if *full {
		scenarios = []scenario{halving(barrier), halving(together), calm(barrier), calm(together)}
	}
	for i, s := range scenarios {
		if modelsearch.Race && i != 1 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	for _, s := range []scenario{
		breaking(barrier, noStep, "owners"),
		breaking(barrier, entriesIgnored, "owners"),
		breaking(barrier, claimsIgnored, "owners"),
		breaking(barrier, notConfirmed, "owners"),
		breaking(barrier, confirmedOnce, "owners"),
		breaking(barrier, marksByIndex, "stale"),
		breaking(halving(barrier), claimsIgnored, "owners"),
		breaking(together, entriesIgnored, "owners"),
		breaking(together, claimsIgnored, "owners"),
		breaking(together, confirmedOnce, "owners"),
		breaking(together, halfTogether, "owners"),
		breaking(together, marksByIndex, "stale"),
	} {
		t.Run(s.name, func(t *testing.T) {
			wrong := search(t, s)
			if !strings.HasPrefix(wrong, s.expect) {
				t.Errorf("found %q, want a violation %q", wrong, s.expect)
			}
		})
	}
}
