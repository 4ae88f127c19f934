package queue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// lookAgain is the time between two looks during a delay, at most. A holder told meanwhile has deleted its claim.
const lookAgain = time.Second

// lookPause is the time between two looks of a session with that lock delay; 0: it has none.
func lookPause(lockDelay time.Duration) time.Duration {
	return cmp.Or(min(lockDelay, lookAgain), lookAgain)
}

// passClaims waits until the delays of the dead claims ahead are over, and deletes the claims. It returns when
// something has changed. It looks while it waits, and at the end: without replies it would not know that the quorum was
// lost, and that no poll has told the former holder.
func (a *attempt) passClaims(ctx context.Context) error {
	var due time.Time             // the end of the last delay
	seen := true                  // each claim, since its delay is over
	for _, e := range a.entries { // no entry is ahead in any of the queues, so all delays run side by side
		for _, c := range e.claims {
			d := e.Queue.shared.delays.get(c)
			switch {
			case d.acquitted:
				continue
			case !d.examined:
				return e.look(ctx)
			}
			end := d.end(a.q.host.LockDelay)
			if end.After(due) {
				due = end
			}
			seen = seen && !d.shown.Before(end)
		}
	}
	if left := time.Until(due); left > 0 {
		if !a.told {
			a.told = true
			a.waiting().tell(ctx)
		}
		if !lease.Sleep(ctx, min(left, lookPause(a.q.host.LockDelay))) {
			return retry.ContextErr(ctx)
		}
	}
	if !seen {
		return a.lookBehindClaims(ctx)
	}
	return a.clear(ctx)
}

// lookBehindClaims looks again in each queue with dead claims ahead.
func (a *attempt) lookBehindClaims(ctx context.Context) error {
	before := a.looks
	for _, e := range a.entries {
		if e.isFree() || e.seen > before { // the look at an earlier queue has read this queue, too
			continue
		}
		if err := e.look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// clear deletes the dead claims ahead, whose delays are over. If it has deleted all, the attempt holds. Otherwise it
// looks again.
func (a *attempt) clear(ctx context.Context) error {
	var dead []deadClaim // in all queues
	for _, e := range a.entries {
		if !e.isFree() {
			e.say(lease.Waited, lease.EntryStep{})
		}
		dead = append(dead, e.claims...)
	}
	for batch := range slices.Chunk(dead, requests.MaxOps-len(a.entries)) {
		sent := a.q.host.Clock()
		var r requests.Reply
		err := a.entries[0].Retry(ctx, func(ctx context.Context) (err error) {
			r, err = a.clearing(batch).Once(ctx, a.q.host.Sender, requests.Write)
			return err
		})
		if err != nil {
			return err
		}
		if !r.Succeeded { // another waiter was faster, or the holder, or an unanswered copy
			return a.lookBehindClaims(ctx)
		}
		a.revision, a.readSent = r.Header.Revision, sent // it has compared the own entries, so it is a look, too
	}
	more := false // a look reads maxClaims at most
	for _, e := range a.entries {
		e.claims, more = nil, more || e.more
	}
	if more {
		return a.lookBehindClaims(ctx)
	}
	return nil
}

// clearing returns the Txn to delete some claims.
func (a *attempt) clearing(claims []deadClaim) requests.Txn {
	var t requests.Txn
	for _, e := range a.entries {
		// An entry must not hold, nor make room for those behind it, while it is being removed:
		//
		//	rev 10  A's claim is dead
		//	rev 12  B puts its entry, and waits for A's delay
		//	rev 15  an administrator moves B's entry to a short lease: create revision 12, mod revision 15
		//	        B's clear compares mod = 12, and is refused. B queues again
		t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(e.Key), "=", e.Created))
	}
	for _, c := range claims {
		t.If = append(t.If, createdAt(c.key, c.rev)) // a later entry may have the same key, and its claim
		t.Then = append(t.Then, clientv3.OpDelete(c.key))
	}
	return t
}

// deadClaim is a conflicting claim ahead without its entry. It stays dead, because a deleted entry never comes back at
// its create revision.
type deadClaim struct {
	key string
	rev int64 // the create revision, of the claim and of its entry

	// acquitted: its entry never held. Something ahead excluded it, and stands yet:
	//
	//	rev 10  A puts, and holds
	//	rev 12  B puts, and waits for A
	//	rev 15  B's lease expires. A still stands, so B never held: its claim costs no delay
	acquitted bool

	moved bool             // it was put again since, so it speaks for itself alone: see examine
	asked clientv3.LeaseID // whose session key the look reads with this claim
}

// dead returns the dead claims out of a reply to claimsAhead, in the order of their creation. entry is the youngest
// conflicting entry ahead, as the same Txn has read it; nil: there is none. Claims younger than this entry are dead.
func (s scope) dead(entry *mvccpb.KeyValue, claims []*mvccpb.KeyValue) (dead []deadClaim) {
	if len(claims) == 0 {
		return nil
	}
	byAge := func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) }
	claims = slices.SortedFunc(slices.Values(claims), byAge)
	// Create revisions of the first key, and of the first writer's; 0: none. entry counts as the first, even beside older
	// claims: it is older than every dead claim.
	var any, writer int64
	stands := func(key string, rev int64) {
		if any == 0 {
			any = rev
		}
		if !layout.IsReader(key) && writer == 0 {
			writer = rev
		}
	}
	if entry != nil {
		stands(string(entry.Key), entry.CreateRevision)
	}
	for _, kv := range claims {
		key, rev := s.At.EntryOf(string(kv.Key)), kv.CreateRevision
		if entry == nil || rev > entry.CreateRevision {
			older := any // two readers do not exclude one another
			if layout.IsReader(key) {
				older = writer
			}
			// Only what is strictly older acquits. The two entries of a Downgradable have one revision, and the reader's must
			// not acquit the writer's, which held. Below a foreign prefix that contains another one, who queues at the inner one
			// waits for nothing outside of it.
			inner := strings.Contains(strings.TrimPrefix(key, s.At.Entries), "/")
			acquitted := older != 0 && older < rev && !inner
			dead = append(dead, deadClaim{key: string(kv.Key), rev: rev, acquitted: acquitted, moved: layout.WasMoved(s.At, kv)})
		}
		stands(key, rev)
	}
	return dead
}

const (
	// maxDelays bounds how many dead claims a session remembers, cleared or not.
	maxDelays = 1 << 15
	// delayLasts is how long it remembers a dead claim at least: longer than any delay.
	delayLasts = 20 * time.Minute
)

// delays is what a session knows of dead claims. All its attempts share it, so the delay of a claim counts from the
// first reply to the session: calls with a deadline below the delay get in at last, and the next goroutine in a line
// waits only for the rest of the delay.
type delays struct {
	mu sync.Mutex // protects of
	of map[string]delay
}

// delay is what is known of one dead claim. Each time is when a reply was received.
type delay struct {
	rev       int64     // of the claim
	acquitted bool      // its entry never held
	dead      time.Time // the first reply showed it without its entry: the delay begins
	gone      time.Time // the first reply showed it without its session key, too; zero: the session key stands
	shown     time.Time // the latest reply showed it
	repeated  bool      // the delay has begun once more: see noteDead
	examined  bool      // says was read, and the session key of the session that it names
	says      layout.Claim
}

// longestGap is the longest time between two replies of which neither was late, with that lock delay.
func longestGap(lockDelay time.Duration) time.Duration {
	return lookPause(lockDelay) + cmp.Or(lockDelay, lookAgain)/4
}

// noteDead records dead claims, as a reply to a session with that lock delay has shown them.
func (s *delays) noteDead(claims []deadClaim, lockDelay time.Duration, now time.Time) {
	if len(claims) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string]delay)
	}
	if len(s.of)+len(claims) > maxDelays {
		maps.DeleteFunc(s.of, func(_ string, known delay) bool { return now.Sub(known.dead) > delayLasts })
	}
	for _, c := range claims {
		known := s.of[c.key]
		switch {
		case known.rev != c.rev: // another claim at the key; after a restore of etcd an older one
			known = delay{rev: c.rev, dead: now}
		case !known.repeated && now.Sub(known.shown) > longestGap(max(lockDelay, known.says.LockDelay)):
			// A former holder is told by a poll, and a poll needs a quorum, too. So a reply that comes a quarter of the lock
			// delay after its time begins the delay once more, before anything is deleted:
			//
			//	0.0 s  A's lease is revoked. B's look shows A's claim dead; the members lose touch with each other
			//	1.0 s  B looks. Neither this nor A's poll is answered
			//	9.0 s  the members meet again, and answer B first. A's poll is on its way: B waits until 11 s
			//
			// The same holds between two calls of TryLock. The delay does not begin a third time: otherwise a slow network, or
			// rare calls, would keep the session from holding. tests/models/quietmodel has this rule.
			known.repeated, known.dead = true, now
			if !known.gone.IsZero() {
				known.gone = now
			}
		}
		known.acquitted = known.acquitted || c.acquitted
		known.shown = now
		s.of[c.key] = known
	}
}

// noteExamined records what a reply has shown of dead claims of one session: what they say, and whether the session key
// of the lease asked has gone. If the claims name another session, its key says nothing of them, and the next look
// reads the key of the session they name.
func (s *delays) noteExamined(
	claims []deadClaim, says layout.Claim, asked clientv3.LeaseID, sessionGone bool, now time.Time,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		known := s.of[c.key]
		if known.rev != c.rev {
			continue
		}
		known.says, known.examined = says, says.Session == clientv3.NoLease || says.Session == asked
		if known.examined && sessionGone && known.gone.IsZero() {
			known.gone = now
		}
		s.of[c.key] = known
	}
}

// get returns what is known of a claim; the zero delay if no reply has shown it dead.
func (s *delays) get(c deadClaim) delay {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.of[c.key]; known.rev == c.rev {
		return known
	}
	return delay{}
}

// end returns when the delay is over for a session with that lock delay. The claim was examined.
func (d delay) end(lockDelay time.Duration) time.Time {
	// By then the holder of the claim has been told:
	//
	//	rev 10  A puts, and holds
	//	rev 15  A's lease is revoked: entry and session key are gone, the claim is dead
	//	        shown at 0 s: the delay ends at 2 s, the lock delay. The watch of the session key has told A
	//	rev 15  or: A's entry is deleted by hand. Its session key stands
	//	        shown at 0 s: the delay ends at 8 s. A poll has told A
	//
	// The holder's own delays count as well: the claim is deleted for all who come later.
	end := d.dead.Add(max(lease.ToldWithin(lockDelay), d.says.ToldWithin))
	if !d.gone.IsZero() {
		if at := d.gone.Add(max(lockDelay, d.says.LockDelay)); at.Before(end) {
			end = at
		}
	}
	return end
}
