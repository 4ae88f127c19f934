//go:build linux

package robustness

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkPermits checks that the permits that are held at one time never exceed the highest limit.
func (j *familyJudge) checkPermits() {
	for _, c := range j.claims {
		if !isPermit(c.parts[0].key) || c.first == 0 {
			continue
		}
		most, sum, all := firstLimit, 0, ""
		for _, l := range j.oracle.history(j.sim, limitKey(nameOf(c.parts[0].prefix))) {
			most = max(most, limitIn(l.Kv))
		}
		for _, other := range j.claims {
			if !other.shares(c.held) || other.first == 0 || other.first > c.first || other.last < c.first {
				continue
			}
			if j.seen(other.deleted.Revision) < c.first && j.excused(other, c) != "" {
				j.stats.count("permits beside one that was gone, as documented: " + j.excused(other, c) + ", " + other.how)
				continue
			}
			sum += permitWeight(other.parts[0].key)
			all += fmt.Sprintf(" %s (revision %d)", other.who, other.rev)
		}
		if sum > most {
			j.fail("permits of %d are held together, and the limit was never above %d:%s", sum, most, all)
		}
	}
}

// checkWrites checks that each write of a holder was made while it held by etcd's record.
func (j *familyJudge) checkWrites() {
	for _, w := range j.history("data/") {
		who := string(w.Kv.Value)
		if j.stats.count("writes of holders"); !slices.ContainsFunc(j.claims, func(c *claim) bool {
			missing, ahead, _ := c.judge(j.queueAt(w.Revision))
			return c.who == who && missing == "" && ahead == ""
		}) {
			j.fail("%s wrote at revision %d, at which it did not hold", who, w.Revision)
		}
	}
}

// checkFronts checks that entries at the front of all their queues did not wait long for a holder, apart from the time
// of faults.
func (j *familyJudge) checkFronts() {
	attempts := make(map[string]*held)
	for _, c := range j.history(simEntries) {
		who := owner(c.Kv)
		if !isEntry(string(c.Kv.Key)) || isPermit(string(c.Kv.Key)) || !isNew(c) || j.oracle.wanted[who] == nil ||
			slices.ContainsFunc(j.killed, func(id string) bool { return strings.HasPrefix(who, id+" ") }) {
			continue
		}
		id := fmt.Sprint(c.Revision, who)
		if attempts[id] == nil {
			attempts[id] = &held{who: who, rev: c.Revision}
		}
		attempts[id].parts = append(attempts[id].parts, partOf(c.Kv))
	}
	for _, a := range attempts {
		front, end := j.atFront(a)
		for _, c := range j.claims {
			if c.continues(a) {
				end = min(end, c.start.At)
			}
		}
		if front == 0 || end < front {
			continue
		}
		wait := end - front - j.disturbedFor(a.who, front, end)
		j.stats.most("at the front without a holder, apart from the time of faults, at most", wait)
		if wait > grantLimit {
			j.fail("%s: its entries of revision %d were at the front for %v without a holder", a.who, a.rev, wait)
		}
	}
}

// atFront returns from when on nothing was ahead of the entries of an attempt, and when the first of them was deleted.
// It returns zeros if there always was.
func (j *familyJudge) atFront(a *held) (front, end time.Duration) {
	revisions := map[int64]bool{a.rev: true} // at which that may have changed
	for _, p := range a.parts {
		for _, c := range j.oracle.history(j.sim, p.prefix) {
			if c.Deleted && c.Revision > a.rev {
				revisions[c.Revision] = true
			}
		}
	}
	for _, rev := range slices.Sorted(maps.Keys(revisions)) {
		missing, ahead, _ := a.judge(j.queueAt(rev))
		switch {
		case missing != "" && front == 0:
			return 0, 0
		case missing != "":
			return front, j.seen(rev)
		case ahead == "" && front == 0:
			front = j.seen(rev)
		}
	}
	return 0, 0
}

// disturbed reports whether a caller's process, or its connection, had a fault in an interval.
func (j *familyJudge) disturbed(who string, from, to time.Duration) bool {
	return slices.ContainsFunc(j.disturbances, func(d disturbance) bool {
		return d.process != "" && d.affects(who) && d.from < to && d.to+afterFault > from
	})
}

// troubled is disturbed, and counts faults of the cluster as well.
func (j *familyJudge) troubled(who string, from, to time.Duration) bool {
	return j.disturbedFor(who, from, to) > 0
}

// afterFault is how long a fault has effects after its end: connections are made again, a leader is elected.
const afterFault = 3 * time.Second

func (d disturbance) affects(who string) bool {
	return d.process == "" || strings.HasPrefix(who, d.process+".")
}

// disturbedFor returns for how long of an interval a caller's process or the cluster had a fault.
func (j *familyJudge) disturbedFor(who string, from, to time.Duration) (sum time.Duration) {
	for _, d := range j.disturbances { // in order of their beginnings
		begin, end := max(from, d.from), min(to, d.to+afterFault)
		if d.affects(who) && end > begin {
			sum += end - begin
			from = end
		}
	}
	return sum
}

// print logs all that is known of the round.
func (j *familyJudge) print(t *testing.T) {
	lines := make(map[time.Duration]string)
	for _, d := range j.disturbances {
		lines[d.from] += fmt.Sprintf("begin: %s %s\n", d.process, d.what)
		lines[d.to] += fmt.Sprintf("end: %s %s\n", d.process, d.what)
	}
	for _, ev := range j.events {
		lines[max(ev.At, ev.Last, ev.Told, ev.Unlocked)] += fmt.Sprintf("%+v\n", ev)
	}
	for _, c := range j.changes {
		verb := "put"
		if c.Deleted {
			verb = "delete"
		}
		lines[j.seen(c.Revision)] += fmt.Sprintf("revision %d %s %s, lease %x, created %d: %s\n", c.Revision, verb, c.Kv.Key,
			c.Kv.Lease, max(c.Kv.CreateRevision, c.Prev.GetCreateRevision()), c.Kv.Value)
	}
	var all strings.Builder
	for _, at := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&all, "%.4f %s", at.Seconds(), lines[at])
	}
	t.Log(all.String())
}
