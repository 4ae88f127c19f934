package lease

import (
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Hearing tells the holders on a lease what the watches of its session key hear, and what the proofs of its renewals
// answer.
type Hearing struct {
	Errands Errands
	watched atomic.Bool
	bell    chan struct{}
}

// Watched reports whether the session key is watched on enough members: then a revocation is told even if some of them
// are sick. Otherwise holders must ask etcd often enough themselves.
func (h *Hearing) Watched() bool { return h.watched.Load() }

// SetWatched records whether the session key is watched on enough members.
func (h *Hearing) SetWatched(watched bool) { h.watched.Store(watched) }

// Bell receives a value after the session key was put: an administrator may have put a notice into an entry of the
// lease. Only one goroutine may receive from it; several puts before it does are one value.
func (h *Hearing) Bell() <-chan struct{} { return h.bell }

// Heard records a mod revision of the session key, from a watch. Each revision rings the bell once.
func (l *Lease) Heard(rev int64) {
	l.mu.Lock()
	// Each watch tells a put. A put of the session itself rings as well: it is rare, and the watch may tell it before its
	// reply comes.
	//
	//	rev 20  an administrator rings the bell. The watch on A tells it: what is held is polled
	//	rev 20  the watch on B tells it: nothing
	//	rev 25  the session puts its key: one needless poll
	rings := rev > l.heard
	l.heard, l.gate = max(l.heard, rev), max(l.gate, rev)
	l.mu.Unlock()
	if rings {
		select {
		case l.bell <- struct{}{}:
		default: // it rings already
		}
	}
}

// An Errand is a question of the holders on a lease to etcd. The proof of a renewal asks it, so it costs no request.
type Errand struct {
	If []clientv3.Cmp // at most 100

	// Told gets the answer: whether the comparisons were true, and when they were sent, by the session's clock. It must
	// return at once. Without a reply, or if etcd refuses the errand, it is not called.
	Told func(sent time.Duration, yes bool)
}

// Errands makes the errands of one lease, one for each renewal.
type Errands struct {
	next     atomic.Pointer[func() *Errand]
	underWay atomic.Bool
}

// Run makes each proof of a renewal ask what next returns; nil: nothing.
func (e *Errands) Run(next func() *Errand) { e.next.Store(&next) }

// Next returns the errand of a proof before it is sent, or nil. Over must follow.
func (e *Errands) Next() *Errand {
	next := e.next.Load()
	if next == nil {
		return nil
	}
	errand := (*next)()
	e.underWay.Store(errand != nil)
	return errand
}

// Over records the end of the proof, with a reply or without.
func (e *Errands) Over() { e.underWay.Store(false) }

// UnderWay reports whether a proof with an errand is in flight.
func (e *Errands) UnderWay() bool { return e.underWay.Load() }

// SlowPoll is the time between two polls of a hold while its lease is watched. With a TTL of 15 s the lease is renewed
// a little more often, and the errands of the proofs are the polls.
const SlowPoll = 5500 * time.Millisecond

// takes is how long the poll of a new hold may take. By then a copy has gone to another member.
const takes = 250 * time.Millisecond

// PollInterval returns the time between two polls of a hold while its lease is not watched: half of the lock delay, so
// the other half is left for the reply, and 1 s at most. The first poll is due so long after the request by which the
// hold began. If the reply to that request comes later, the poll goes at once.
func PollInterval(lockDelay time.Duration) time.Duration {
	if lockDelay > 0 {
		return min(lockDelay/2, time.Second)
	}
	return time.Second
}

// ToldWithin returns Value.ToldWithin of a session with that lock delay: the delay and 6 s.
func ToldWithin(lockDelay time.Duration) time.Duration {
	// The first entry of a queue may have to wait for the delay before it holds. Its holder is told after a SlowPoll, a
	// quarter of a second until the poller's next tick, and a quarter of a second for the reply.
	return lockDelay + SlowPoll + takes + takes
}

// LookLasts returns how old the last read of its entries may be, counted from its send, when an attempt takes the lock.
func LookLasts(lockDelay time.Duration) time.Duration {
	// An administrator may remove an entry right after the read. The entry is gone ToldWithin later, and by then etcd must
	// have replied to a poll of the hold. For example, with a lock delay of 2 s:
	//
	//	0 s     the read is sent, and right after it an administrator removes the entry: it goes at 8 s
	//	5.75 s  at the latest the attempt holds
	//	6.75 s  the first poll is due; if a poll is in flight then, the next is due at 7.75 s
	//	8 s     its reply has come: the holder is told
	return ToldWithin(lockDelay) - 2*PollInterval(lockDelay) - takes
}
