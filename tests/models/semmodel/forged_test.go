package semmodel

import (
	"slices"
	"strings"
	"testing"
)

// What events in forged runs are made of. Attempt i has lease 2i, after a loss 2i+1. The n-th event that changes the
// store has revision n+1.

func put(lease int8) event             { return event{action: puts, actor: lease} }
func gone(lease int8) event            { return event{action: removes, actor: lease} }
func revoked(lease int8) event         { return event{action: revokes, actor: lease} }
func mark(lease int8, says int8) event { return event{action: marks, actor: lease, mark: says} }
func tells(lease int8) event           { return event{action: told, actor: lease} }
func limit(now, high int8) event       { return event{action: resizes, limit: now, high: high} }
func held(attempt int8) event          { return event{action: holds, actor: attempt} }
func waits(attempt int8) event         { return event{action: waited, actor: attempt} }
func room(attempt int8) event          { return event{action: judged, actor: attempt} }
func leads(attempt int8) event         { return event{action: judged, actor: attempt, first: true} }

func delays(attempt int8) event {
	return event{action: judged, actor: attempt, first: true, delays: true}
}

func behind(attempt int8, ahead revision) event {
	return event{action: judged, actor: attempt, ahead: ahead}
}

func after(before []event, more ...event) []event { return slices.Concat(before, more) }

// Each case is a run that the model accepts, and another one that wrong code could make. In some of them no rule is
// broken otherwise: only the step is wrong.
func TestForgedRunsAreRefused(t *testing.T) {
	one, two := traced[0], traced[1] // permits
	first := []event{put(0), room(0), held(0), put(2), leads(1)}
	pair := []event{put(0), room(0), held(0), put(2), room(1), held(1)}
	three := after(first, put(4), behind(2, 3))
	lowered := traced[4] // 3 permits, then 1; weights 2 1 1 2
	end := event{action: ended}
	for rule, r := range map[string]struct {
		model                scenario
		before, right, wrong []event
	}{
		"no more than the limit hold": {
			one, []event{put(0), room(0), held(0), put(2)},
			[]event{leads(1)},
			[]event{room(1)},
		},
		"a waiter marks its permit before it holds": {
			one, after(first, gone(0)),
			[]event{mark(2, 4), held(1), gone(2), end},
			[]event{held(1), gone(2), end},
		},
		"a waiter waits for its turn": {
			one, three,
			[]event{gone(0), mark(2, 5), held(1)},
			[]event{gone(0), mark(4, 5), held(2)},
		},
		"a revoked permit causes a delay": {
			one, after(first, revoked(0), tells(0)),
			[]event{delays(1), waits(1), mark(2, 4), held(1)},
			[]event{mark(2, 4), held(1)},
		},
		"a permit that is released causes no delay": {
			one, after(first, gone(0)),
			[]event{mark(2, 4), held(1)},
			[]event{delays(1), waits(1), mark(2, 4), held(1)},
		},
		"a delay lasts until the revoked holder has been told": {
			one, after(first, revoked(0), delays(1)),
			[]event{tells(0), waits(1), mark(2, 4), held(1)},
			[]event{waits(1), mark(2, 4), tells(0), held(1)},
		},
		"a far attempt is the first waiter when the permit ahead is marked": {
			one, after(three, gone(0)),
			[]event{mark(2, 5), held(1), leads(2)},
			[]event{leads(2), mark(2, 5), held(1)},
		},
		"a mark says all that was waited for": {
			two, after(pair, put(4), leads(2), revoked(0), delays(2), tells(0), waits(2)),
			[]event{mark(4, 5), held(2)},
			[]event{mark(4, 4), held(2)},
		},
		"a mark says nothing that was not waited for": {
			one, after(three, revoked(0)),
			[]event{mark(2, 3), leads(2)},
			[]event{mark(2, 5), leads(2)},
		},
		"a permit ahead that went without a mark causes a delay": {
			one, after(three, revoked(2), tells(2), gone(0)),
			[]event{delays(2), waits(2), mark(4, 6), held(2)},
			[]event{leads(2), mark(4, 6), held(2)},
		},
		"an attempt that queues again after a loss delays": {
			one, after(first, revoked(2), tells(2), put(3)),
			[]event{delays(1)},
			[]event{leads(1)},
		},
		"a permit holds by the limit at its put": {
			lowered, []event{put(0), room(0), held(0), put(2)},
			[]event{room(1), limit(1, 3), held(1)},
			[]event{limit(1, 3), room(1), held(1)},
		},
		"the highest limit comes down when no permit of it stands": {
			lowered, []event{put(0), room(0), held(0), limit(1, 3), gone(0)},
			[]event{limit(2, 2)},
			[]event{limit(2, 3)},
		},
		"what was put is removed": {
			one, []event{put(0), room(0)},
			[]event{gone(0), end},
			[]event{end},
		},
	} {
		t.Run(rule, func(t *testing.T) {
			refused := func(events []event) string {
				m := model{scenario: r.model}
				wrong, _ := m.refused(slices.Concat(r.before, events))
				return wrong
			}
			if wrong := refused(r.right); wrong != "" {
				t.Errorf("the right run: %s", wrong)
			}
			if wrong := refused(r.wrong); !strings.Contains(wrong, "is not a step of the model") {
				t.Error("the model accepts the forged run")
			}
		})
	}
}

// A search does not find this: it takes five attempts, a revocation, a lost reply, and a change of the limit. Attempt 1
// has room from revision 4 on, and asks late. Meanwhile attempt 2 holds by its put; its lease is revoked, and its
// session does not know. Attempt 3, whose put had no reply, leaves without a mark. So attempt 4 is the first that can
// wait for the revoked one.
func TestMarkDoesNotSpeakOfPermitsBehindIt(t *testing.T) {
	events := []event{
		put(0), room(0), held(0), put(2), leads(1), limit(3, 3), put(4), room(2), held(2), put(6),
		put(8), behind(4, 6), revoked(4), gone(0), mark(2, 9), held(1), gone(6), leads(4),
	}
	early := after(events, mark(8, 11), held(4))
	s := scenario{limit: 1, resizes: []int8{3}, attempts: giveUp(permits(1, 1, 1, 1, 2), 3), revokes: 1, lossy: true}
	broken := model{scenario: with(s, breaking(markSpeaksOfAll, ""))}
	if wrong, _ := broken.refused(early); wrong != "" {
		t.Errorf("with the broken rule: %s", wrong)
	}
	right := model{scenario: s}
	if wrong, _ := right.refused(early); !strings.HasPrefix(wrong, "event 18 ") {
		t.Errorf("refused for another reason: %s", wrong)
	}
	if wrong, _ := right.refused(after(events, delays(4), tells(4), waits(4), mark(8, 11), held(4))); wrong != "" {
		t.Error(wrong)
	}
}
