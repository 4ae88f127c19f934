//go:build linux

package robustness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// A claim is a hold as its process has seen it, and what became of its entries.
type claim struct {
	*held
	start, end  familyEvent
	first, last time.Duration    // it was believed to be held between them
	deleted     *etcdfake.Change // the first of its entries that was deleted
	how         string           // why that was
	asked       time.Duration    // when an administrator had asked it to let go; zero if none had
}

// Why an entry was deleted.
const (
	byRelease = "a request of its session"
	byExpiry  = "its lease expired, or its session was closed"
	byHand    = "deleted by hand"
	byRemoval = "removed by an administrator"
	byRevoke  = "its lease was revoked by hand"
	byDeposed = "its lease was revoked by another member than the leader"
)

// expected reports whether the entry was deleted in a way that a holder knows of before, even without a connection.
func (c *claim) expected() bool { return c.how == byRelease || c.how == byExpiry }

// reported is what the oracle asks of a hold.
type reported struct {
	unlocker
	familyEvent
}

func (r reported) Key() string             { return r.familyEvent.Key }
func (r reported) AcquiredRevision() int64 { return r.Acquired }
func (r reported) Lease() clientv3.LeaseID { return r.familyEvent.Lease }

// familyJudge judges one round.
type familyJudge struct {
	*familyRound
	oracle  *oracle
	sim     *simulation
	log     *raftLog
	changes []etcdfake.Change
	claims  []*claim
}

// judge compares what the processes have reported with the history after a revision, up to another one.
func (f *familyRound) judge(t *testing.T, from, to int64, log *raftLog) {
	t.Helper()
	j := &familyJudge{familyRound: f, log: log, changes: f.record.between(from, to)}
	f.record.mu.Lock() // judge reads it from now on
	defer f.record.mu.Unlock()
	j.sim = &simulation{begin: time.Now(), recorded: j.history}
	j.oracle = &j.sim.oracle
	j.oracle.past, j.oracle.wanted = make(map[string][]etcdfake.Change), make(map[string][]part)
	last := make(map[string]*claim) // by owner
	for _, ev := range f.events {
		switch ev.What {
		case "wants":
			f.stats.count("calls")
			j.oracle.wanted[ev.Who] = ev.parts()
		case "held":
			last[ev.Who] = j.granted(ev)
		case "ended":
			last[ev.Who].end = ev
			last[ev.Who].last = max(ev.Last, last[ev.Who].last)
		case "cannot":
			f.fail("%s after all faults were healed: %s", ev.Who, ev.Err)
		case "closed":
			if ev.Err != "" {
				f.fail("%s: Close: %s", ev.Who, ev.Err)
			}
		}
	}
	for _, c := range j.claims {
		j.findEnd(c)
	}
	for i, c := range j.claims {
		j.checkEnd(c)
		for _, other := range j.claims[:i] {
			if other.excludes(c.held) && !c.continues(other.held) {
				j.checkPair(other, c)
			}
		}
	}
	j.checkPermits()
	j.checkWrites()
	j.checkFronts()
	j.oracle.checkRecord(j.sim)
	for _, v := range append(j.sim.violations, f.failed...) {
		t.Errorf("round %d: %s", f.number, v)
	}
	if len(j.sim.violations)+len(f.failed) > 0 && *simulationTrace {
		j.print(t)
	}
}

// history returns the changes of the round below a prefix.
func (j *familyJudge) history(prefix string) (all []etcdfake.Change) {
	for _, c := range j.changes {
		if strings.HasPrefix(string(c.Kv.Key), prefix) {
			all = append(all, c)
		}
	}
	return all
}

// seen returns a time before which a revision was made.
func (j *familyJudge) seen(rev int64) time.Duration { return j.record.seen[rev] }

// queueAt returns a function that reads queues as they stood at a revision.
func (j *familyJudge) queueAt(rev int64) func(prefix string) []*mvccpb.KeyValue {
	return func(prefix string) []*mvccpb.KeyValue { return j.oracle.queueAt(j.sim, prefix, rev) }
}

// granted has the oracle check a grant.
func (j *familyJudge) granted(ev familyEvent) *claim {
	token := fencing.Token(ev.Token)
	c := &claim{start: ev, first: ev.First, last: ev.First, held: &held{
		who: ev.Who, parts: ev.parts(), lock: reported{familyEvent: ev}, token: token, rev: token.Revision()}}
	j.oracle.find(j.sim, c.held)
	if slices.ContainsFunc(c.parts, func(p part) bool { return p.key == "" }) {
		return c // find has told
	}
	j.oracle.checkVerified(j.sim, c.held)
	if p := c.parts[0]; isPermit(p.key) {
		j.oracle.checkAdmission(j.sim, nameOf(p.prefix), c.held, permitWeight(p.key), ev.Acquired)
	}
	if made := j.record.notBefore(ev.Acquired); made > ev.At {
		j.fail("%s: held %v before revision %d, at which it is said to be held", ev.Who, made-ev.At, ev.Acquired)
	}
	j.stats.granted++
	j.stats.count("acquired: " + [...]string{"writer", "reader", "set", "tree lock", "downgradable lock, or its reader",
		"permit", "writer with MinHold"}[ev.Kind])
	j.claims = append(j.claims, c)
	return c
}

// findEnd finds the first deletion of an entry of a claim, and why that was.
func (j *familyJudge) findEnd(c *claim) {
	for _, p := range c.parts {
		for _, d := range j.oracle.history(j.sim, p.key) {
			switch v, _ := queue.DecodeValue(d.Kv.Value); {
			case d.Deleted && d.Prev.CreateRevision == c.rev && (c.deleted == nil || d.Revision < c.deleted.Revision):
				c.deleted = &d
			case !d.Deleted && d.Kv.CreateRevision == c.rev && v.Notice.Given() && c.asked == 0:
				c.asked = j.seen(d.Revision)
			}
		}
	}
	d := c.deleted
	id, _ := queue.LeaseOf(string(d.Kv.Key)) // the round ends when no entry is left
	sessionKey := fmt.Sprintf("%ssession/%x", simEntries, int64(id))
	withLease := slices.ContainsFunc(j.oracle.history(j.sim, sessionKey), func(k etcdfake.Change) bool {
		return k.Deleted && k.Revision == d.Revision
	})
	v, _ := queue.DecodeValue(d.Prev.Value)
	r, logged := j.log.revokes[clientv3.LeaseID(d.Prev.Lease)]
	switch {
	case j.byHand[entryID(d.Prev)]:
		c.how = byHand
	case v.Notice.Given() && clientv3.LeaseID(d.Prev.Lease) != id:
		c.how = byRemoval
	case j.revoked[clientv3.LeaseID(d.Prev.Lease)]:
		c.how = byRevoke
	case !withLease && clientv3.LeaseID(d.Prev.Lease) == id:
		c.how = byRelease
	case logged && r.proposer != j.log.leaders[r.term]:
		c.how = byDeposed
	default:
		c.how = byExpiry
	}
	if c.end.Told != 0 {
		j.stats.count("lost: " + c.how)
	}
}

// checkEnd checks what a process saw when its hold ended.
func (j *familyJudge) checkEnd(c *claim) {
	gone := j.seen(c.deleted.Revision)
	if late := c.last - gone; c.last != 0 {
		j.stats.most("Check was nil after the entry was gone, at most: "+c.how, late)
		if late > 0 && (c.expected() || late > forcedLossLimit && !j.troubled(c.who, gone-2*time.Second, c.last)) {
			j.fail("%s: Check returned nil %v after its entry of revision %d was deleted: %s", c.who, late, c.rev, c.how)
		}
	}
	if late := c.last - c.asked; c.asked != 0 && c.last > max(c.asked, c.first) {
		j.stats.most("Check was nil after an administrator had asked, at most", late)
		if late > forcedLossLimit && !j.troubled(c.who, c.asked-2*time.Second, c.last) {
			j.fail("%s: Check returned nil %v after an administrator had asked, without a fault", c.who, late)
		}
	}
	if c.end.Unlocked == 0 || c.end.Told != 0 {
		return
	}
	switch made := j.record.notBefore(c.deleted.Revision); {
	case c.start.MinHold == 0:
		if made > c.end.Unlocked {
			j.fail("%s: Unlock returned nil %v before its entry was deleted", c.who, made-c.end.Unlocked)
		}
	case c.expected():
		if taken := gone - j.record.notBefore(c.start.Acquired); taken < c.start.MinHold {
			j.fail("%s: the name was taken for %v, which is less than %v", c.who, taken, c.start.MinHold)
		}
		j.stats.count("names that stayed taken by MinHold")
	}
}

// checkPair checks two holds that exclude each other.
func (j *familyJudge) checkPair(a, b *claim) {
	if a.rev > b.rev {
		a, b = b, a
	}
	if a.first == 0 || b.first == 0 { // suspended from the start
		return
	}
	why, both := j.excused(a, b), a.last-b.first
	switch {
	case b.last < a.first:
		j.fail("%s held revision %d before %s held revision %d", b.who, b.rev, a.who, a.rev)
	case both < 0 || why != "":
	default:
		j.fail("%s (revision %d) and %s (revision %d) held together for %v: %s", a.who, a.rev, b.who, b.rev, both, a.how)
	}
	switch {
	case both >= 0 && why != "":
		j.stats.count("two held, as documented: " + why + ", " + a.how)
		j.stats.most("two held, as documented: "+why+", "+a.how, both)
	case a.end.Told != 0 && b.rev < a.deleted.Revision && why == "": // b waited
		j.stats.least("the last Check of a lost hold was nil before the next held, at least: "+a.how, -both)
	}
}

// excused returns why docs/guarantees.md does not promise that a was told before b held, or "".
func (j *familyJudge) excused(a, b *claim) string {
	switch gone := j.seen(a.deleted.Revision); {
	case a.expected():
		return ""
	case a.how == byHand:
		return "a loss is told within 2 s"
	case b.rev > a.deleted.Revision:
		return "a newcomer waits for no lock delay"
	case j.disturbed(a.who, gone-2*time.Second, b.first):
		return "the process was stopped or cut off"
	case a.end.Gap > promptLimit/2 || slices.ContainsFunc(j.record.starved, func(d disturbance) bool {
		return d.from < b.first && d.to > gone-time.Second
	}):
		return "the machine was too busy"
	}
	return ""
}
