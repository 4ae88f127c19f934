package attachmodel

import (
	"flag"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

func TestMain(m *testing.M) { leak.Main(m) }

var full = flag.Bool("model.full", false, "search with more faults")

var (
	calm    = scenario{name: "calm", left: budget{attaches: 3, detaches: 2, closes: 1}}
	lost    = scenario{name: "lost and late", left: budget{attaches: 2, detaches: 2, lost: 2, lates: 2}}
	givenUp = scenario{name: "given up again and again", left: budget{attaches: 3, detaches: 1, lost: 1, lates: 2}}
	faulty  = scenario{name: "revoked and deleted", left: budget{
		attaches: 2, detaches: 1, lost: 1, revokes: 1, deletes: 1, closes: 1,
	}}
	lateRevoked = scenario{name: "late, revoked and closed", left: budget{
		attaches: 2, detaches: 2, lost: 1, lates: 1, revokes: 1, closes: 1,
	}}
	lateDeleted = scenario{name: "late and deleted", left: budget{
		attaches: 3, detaches: 2, lost: 1, lates: 1, deletes: 1,
	}}
)

func breaking(s scenario, r rule, expect string) scenario {
	s.broken, s.expect, s.name = r, expect, string(r)+", in: "+s.name
	return s
}

func search(t *testing.T, s scenario) string {
	m := model{scenario: s}
	r := m.search()
	t.Logf("%d states, %d steps", r.States, r.Steps)
	return r.Wrong
}

func TestEveryInterleavingKeepsTheRules(t *testing.T) {
	scenarios := []scenario{calm, lost, faulty, givenUp}
	if *full {
		scenarios = []scenario{lateRevoked, lateDeleted}
	}
	for i, s := range scenarios {
		if modelsearch.Race && i != 0 {
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
		breaking(lost, holdsUntilReply, "exclusion"),
		breaking(lost, detachIgnoresMod, "exclusion"),
		breaking(calm, detachLeavesClaim, "needless"),
		breaking(calm, attachIgnoresMod, "exclusion"),
		breaking(givenUp, attachIgnoresGate, "stuck"),
		breaking(faulty, attachLeavesClaim, "exclusion"),
		breaking(faulty, claimKeepsName, "exclusion"),
		breaking(lost, lostIsRefused, "stuck"),
		breaking(lost, sweepAnywhere, "exclusion"),
	} {
		t.Run(s.name, func(t *testing.T) {
			wrong := search(t, s)
			if !strings.HasPrefix(wrong, s.expect) {
				t.Errorf("found %q, want a violation %q", wrong, s.expect)
			}
		})
	}
}
