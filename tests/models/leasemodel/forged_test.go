package leasemodel

import (
	"slices"
	"strings"
	"testing"
)

// What events in forged runs are made of. The lease has a TTL of 6 and is trusted for 4.

func at(now moment, actions ...string) []event {
	events := []event{{at: now, action: passes}}
	for _, a := range actions {
		events = append(events, event{at: now, action: a})
	}
	return events
}

func trusts(now, until moment) event {
	return event{at: now, action: knows, until: until, suspended: now >= until-2}
}

// Each case is a run that the model accepts, and another one that wrong code could make.
func TestForgedRunsAreRefused(t *testing.T) {
	sends := at(1, "a renewal is sent", "a read is sent")
	carried := at(2, "the leader of term 1 acknowledges the renewal sent at 1",
		"the read sent at 1 is carried out in term 1")
	const (
		acked  = "the acknowledgement of the renewal sent at 1 arrives, term 1"
		proved = "the reply to the read sent at 1 arrives, term 1"
	)
	answered := slices.Concat(sends, carried)
	told := func(now moment) event { return event{at: now, action: passes, suspended: true} }
	for rule, r := range map[string]struct{ before, right, wrong []event }{
		"a renewal counts from its send": {
			slices.Concat(answered, at(2, acked, proved)),
			[]event{trusts(2, 5)},
			[]event{trusts(2, 6)},
		},
		"a renewal counts from the earlier of the two sends": {
			slices.Concat(at(1, "a renewal is sent"), at(2, "a read is sent",
				"the leader of term 1 acknowledges the renewal sent at 1", "the read sent at 2 is carried out in term 1",
				acked, "the reply to the read sent at 2 arrives, term 1")),
			[]event{trusts(2, 5)},
			[]event{trusts(2, 6)},
		},
		"a renewal does not count without a proof": {
			slices.Concat(answered, at(2, acked)),
			[]event{trusts(2, 4)},
			[]event{trusts(2, 5)},
		},
		"an acknowledgement of an earlier term than that of the proof does not count": {
			slices.Concat(sends, at(1, "a leader of term 2 is elected", "the leader of term 2 finds that it leads",
				"the leader of term 1 acknowledges the renewal sent at 1", "the read sent at 1 is carried out in term 2",
				acked, "the reply to the read sent at 1 arrives, term 2")),
			[]event{trusts(1, 4)},
			[]event{trusts(1, 5)},
		},
		"a suspension is told when half of the time is over": {
			at(2),
			[]event{{at: 2, action: knows, until: 4, suspended: true}, told(3)},
			at(3),
		},
		"a suspension is not told before": {
			at(1),
			[]event{{at: 1, action: knows, until: 4}},
			[]event{{at: 1, action: knows, until: 4, suspended: true}},
		},
		"a loss is told when trusted-until has passed": {
			[]event{told(4)},
			[]event{{at: 4, action: lost}},
			[]event{told(5)},
		},
		"a loss is not told before, while the lease exists": {
			[]event{told(3)},
			[]event{told(4), {at: 4, action: lost}},
			[]event{{at: 3, action: lost}},
		},
		"a loss is final": {
			slices.Concat(answered, []event{told(4)}),
			[]event{{at: 4, action: acked}, {at: 4, action: proved}, trusts(4, 4)},
			[]event{{at: 4, action: acked}, {at: 4, action: proved}, trusts(4, 5)},
		},
	} {
		t.Run(rule, func(t *testing.T) {
			m := model{scenario: scenario{terms: 2, copies: 2, ttl: 6, trust: 4}}
			if wrong, _ := m.refused(slices.Concat(r.before, r.right)); wrong != "" {
				t.Errorf("the right run: %s", wrong)
			}
			wrong, _ := m.refused(slices.Concat(r.before, r.wrong))
			if !strings.Contains(wrong, "is not a step of the model") {
				t.Error("the model accepts the forged run")
			}
		})
	}
}
