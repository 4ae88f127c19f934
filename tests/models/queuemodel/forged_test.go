package queuemodel

import (
	"slices"
	"strings"
	"testing"
)

// What events in forged runs are made of. Attempt i is of session i and has lease 2i, after a loss 2i+1.

func entryOf(attempt, try int8) name { return name{attempt, try, 0} }

func sent(attempt int8) event  { return event{action: sends, actor: attempt} }
func waits(attempt int8) event { return event{action: waited, actor: attempt} }
func held(attempt int8) event  { return event{action: holds, actor: attempt} }
func tells(lease int8) event   { return event{action: told, actor: lease} }
func put(n name) event         { return event{action: changes, change: change{put: n.bit()}} }
func gone(n name) event        { return event{action: changes, change: change{gone: n.bit()}} }

func keyPut(lease int8) event {
	return event{action: changes, change: change{keyPut: 1 << lease}}
}

func revoked(lease int8, n name) event {
	return event{action: changes, change: change{gone: n.bit(), keyGone: 1 << lease}}
}

func knows(attempt int8, ahead name) event {
	return event{action: judged, actor: attempt, ahead: ahead}
}

func delays(attempt int8, ahead name) event {
	return event{action: judged, actor: attempt, ahead: ahead, delays: true}
}

// queued are an attempt's events until it knows what is ahead.
func queued(attempt int8, ahead name) []event {
	return []event{sent(attempt), put(entryOf(attempt, 0)), knows(attempt, ahead)}
}

// Each case is a run that the model accepts, and another one that wrong code could make. In most of them no two
// hold at once: only the step is wrong.
func TestForgedRunsAreRefused(t *testing.T) {
	a, b, c := entryOf(0, 0), entryOf(1, 0), entryOf(2, 0)
	two := slices.Concat(queued(0, nothing), []event{held(0)}, queued(1, a))
	three := slices.Concat(two, queued(2, b))
	end := event{action: ended}
	for rule, r := range map[string]struct{ before, right, wrong []event }{
		"a revoked entry ahead causes a delay": {
			append(two, revoked(0, a), tells(0)),
			[]event{delays(1, nothing), waits(1), held(1), gone(b), end},
			[]event{knows(1, nothing), held(1), gone(b), end},
		},
		"an entry that is released ahead causes no delay": {
			append(two, gone(a)),
			[]event{knows(1, nothing), held(1), gone(b), end},
			[]event{delays(1, nothing), waits(1), held(1), gone(b), end},
		},
		"an attempt waits for its delay before it holds": {
			append(two, revoked(0, a), tells(0), delays(1, nothing)),
			[]event{waits(1), held(1), gone(b), end},
			[]event{held(1), gone(b), end},
		},
		"a delay lasts until the revoked holder has been told": {
			append(two, revoked(0, a), delays(1, nothing)),
			[]event{tells(0), waits(1), held(1)},
			[]event{waits(1), tells(0), held(1)},
		},
		"an attempt judges before it holds": {
			append(two, gone(a)),
			[]event{knows(1, nothing), held(1)},
			[]event{held(1)},
		},
		"the entry ahead is read at the revision of the deletion": {
			append(three, gone(b), revoked(0, a), tells(0)),
			[]event{knows(2, a), delays(2, nothing), waits(2), held(2), gone(c), end},
			[]event{knows(2, nothing), held(2), gone(c), end},
		},
		"the attempt waits for the entry that is the nearest": {
			append(two, sent(2), put(c)),
			[]event{knows(2, b)},
			[]event{knows(2, a)},
		},
		"an attempt that queues again after a loss delays": {
			append(two, revoked(2, b), tells(2), keyPut(3), sent(1), put(entryOf(1, 1))),
			[]event{delays(1, a)},
			[]event{knows(1, a)},
		},
		"a waiting entry is not deleted after the one ahead, which it has not judged": {
			append(two, revoked(0, a), tells(0)),
			[]event{delays(1, nothing), gone(b), end},
			[]event{gone(b), delays(1, nothing), end},
		},
		"a copy that was not answered is stopped": {
			[]event{sent(0)},
			[]event{keyPut(0), end},
			[]event{end},
		},
		"what a copy that was not answered has put is removed": {
			[]event{sent(0), put(a)},
			[]event{keyPut(0), gone(a), end},
			[]event{keyPut(0), end},
		},
		"a copy does nothing once the session key was put": {
			[]event{sent(0)},
			[]event{put(a), keyPut(0)},
			[]event{keyPut(0), put(a)},
		},
	} {
		t.Run(rule, func(t *testing.T) {
			if wrong, _ := newModel(traced).refused(slices.Concat(r.before, r.right)); wrong != "" {
				t.Errorf("the right run: %s", wrong)
			}
			wrong, _ := newModel(traced).refused(slices.Concat(r.before, r.wrong))
			if !strings.Contains(wrong, "is not a step of the model") {
				t.Error("the model accepts the forged run")
			}
		})
	}
}
