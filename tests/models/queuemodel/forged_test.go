package queuemodel

import (
	"slices"
	"strings"
	"testing"
)

// What events in forged runs are made of. Attempt i is of session i. It puts key i under lease 2i, and after a loss key
// i+4 under lease 2i+1.

func sendsPut(attempt int8) event  { return event{action: sends, actor: attempt} }
func waitsLong(attempt int8) event { return event{action: waited, actor: attempt} }
func holdsNow(attempt int8) event  { return event{action: holds, actor: attempt} }
func tells(lease int8) event       { return event{action: told, actor: lease} }
func etcd(c change) event          { return event{action: changes, change: c} }
func put(k int8) event             { return etcd(change{put: bit(k), claimed: bit(k)}) }
func ends(attempt int8) event      { return event{action: letsGo, actor: attempt} }
func leaves(k int8) event          { return etcd(change{gone: bit(k), unclaimed: bit(k)}) }
func cleared(k ...int8) event {
	var c change
	for _, k := range k {
		c.unclaimed |= bit(k)
	}
	return etcd(c)
}
func dies(lease int8, k int8) event { return etcd(change{gone: bit(k), keyGone: bit(lease)}) }
func putsS(lease int8) event        { return etcd(change{keyPut: bit(lease)}) }
func knows(attempt, ahead int8) event {
	return event{action: judged, actor: attempt, ahead: ahead}
}
func mustDelay(attempt int8) event {
	return event{action: judged, actor: attempt, ahead: nothing, delays: true}
}

// queued are an attempt's events until it knows what is ahead.
func queued(attempt, ahead int8) []event {
	return []event{sendsPut(attempt), put(attempt), knows(attempt, ahead)}
}

// Each case is a run that the model accepts, and another one that wrong code could make. In most of them no two
// hold at once: only the step is wrong.
func TestForgedRunsAreRefused(t *testing.T) {
	two := slices.Concat(queued(0, nothing), []event{holdsNow(0)}, queued(1, 0))
	three := slices.Concat(two, queued(2, 1))
	died := slices.Concat(two, []event{dies(0, 0)})
	end := event{action: ended}
	for rule, r := range map[string]struct{ before, right, wrong []event }{
		"an entry that dies ahead causes a delay": {
			slices.Concat(died, []event{tells(0)}),
			[]event{mustDelay(1), waitsLong(1), cleared(0), holdsNow(1), ends(1), leaves(1), end},
			[]event{knows(1, nothing), holdsNow(1), ends(1), leaves(1), end},
		},
		"one that is released causes none": {
			slices.Concat(two, []event{ends(0), leaves(0)}),
			[]event{knows(1, nothing), holdsNow(1), ends(1), leaves(1), end},
			[]event{mustDelay(1)},
		},
		"a delay lasts until the session of who has died is told": {
			slices.Concat(died, []event{mustDelay(1)}),
			[]event{tells(0), waitsLong(1), cleared(0), holdsNow(1)},
			[]event{waitsLong(1), tells(0), cleared(0), holdsNow(1)},
		},
		"a delay is waited for": {
			slices.Concat(died, []event{mustDelay(1), tells(0)}),
			[]event{waitsLong(1), cleared(0), holdsNow(1)},
			[]event{holdsNow(1)},
		},
		"all dead claims are cleared": {
			slices.Concat(three, []event{dies(2, 1), tells(2), dies(0, 0), tells(0)}),
			[]event{mustDelay(2), waitsLong(2), cleared(0, 1), holdsNow(2)},
			[]event{mustDelay(2), waitsLong(2), etcd(change{unclaimed: bit(0)}), holdsNow(2)},
		},
		"a look comes before a hold": {
			slices.Concat(two, []event{ends(0), leaves(0)}),
			[]event{knows(1, nothing), holdsNow(1)},
			[]event{holdsNow(1)},
		},
		"who comes later sees the claim": {
			slices.Concat(queued(0, nothing), []event{holdsNow(0), dies(0, 0), tells(0), sendsPut(1), put(1)}),
			[]event{mustDelay(1)},
			[]event{knows(1, nothing)},
		},
		"who comes back waits behind its own claim": {
			slices.Concat(queued(0, nothing), []event{dies(0, 0), tells(0), putsS(1), {action: sends, pair: 1}, put(4)}),
			[]event{mustDelay(0)},
			[]event{knows(0, nothing)},
		},
		"the nearest entry is waited for": {
			slices.Concat(two, []event{sendsPut(2), put(2)}),
			[]event{knows(2, 1)},
			[]event{knows(2, 0)},
		},
		"a put puts its claim": {
			[]event{sendsPut(0)},
			[]event{put(0)},
			[]event{etcd(change{put: bit(0)})},
		},
		"a release deletes the claim": {
			two,
			[]event{ends(0), leaves(0), knows(1, nothing)},
			[]event{ends(0), etcd(change{gone: bit(0)}), knows(1, nothing)},
		},
		"after a loss L2 is revoked": {
			slices.Concat(queued(0, nothing), []event{dies(0, 0), tells(0)}),
			[]event{cleared(0), end},
			[]event{end},
		},
		"a copy that was not answered is stopped": {
			[]event{sendsPut(0)},
			[]event{putsS(0), end},
			[]event{end},
		},
		"what a copy that was not answered has put is removed": {
			[]event{sendsPut(0), put(0)},
			[]event{putsS(0), leaves(0), end},
			[]event{putsS(0), end},
		},
		"a copy does nothing once the session key was put": {
			[]event{sendsPut(0)},
			[]event{put(0), putsS(0)},
			[]event{putsS(0), put(0)},
		},
		"a put compares the present session key": {
			[]event{putsS(0)},
			[]event{sendsPut(0), put(0)},
			[]event{{action: sends, stale: true}, put(0)},
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
