package queue

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/inquest"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/polls"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// attempt is one round of an acquisition, under one lease: the entries that one Txn puts, one in each queue, until they
// hold or are given up. One goroutine at a time works on it; a hand-off passes it to another caller.
type attempt struct {
	lease   *lease.Lease
	q       *Queue // of the first entry, which is the only one unless the attempt is that of a Set
	entries []*entry
	room    room // for the entry of a lock

	// requeued: during the acquisition the session lost a lease, or an entry was of no use. The attempt holds only after
	// the lock delay, since a holder that the earlier entry waited for may have been revoked, too.
	requeued bool

	revision int64        // of the store, at the latest read that saw the entries
	lookSent time.Time    // when that read, or the put, was sent
	stoodAt  time.Time    // when the latest request was sent that showed that the lease was not revoked
	past     inquest.Past // of all its waits

	delaysEnd time.Time // when nothing is ahead of any entry, and the latest lock delay of them is over
	delayed   bool      // a lock delay of one has run twice: see wait.endDelay

	unansweredAt int64 // gate of the latest unanswered copy of the put; 0 if all were answered
}

// room is where the entry of an attempt with one is, and its grant, so that a lock allocates them at once.
type room struct {
	entry   entry
	entries [1]*entry
	grant   Grant
	grants  [1]*Grant
}

// newAttempt returns an attempt of the heads of some lines. With requeued it holds only after the lock delay.
func newAttempt(heads []*ticket, lease *lease.Lease, requeued bool) *attempt {
	a := &attempt{lease: lease, q: heads[0].q, requeued: requeued}
	a.entries = a.room.entries[:0] // allocates for a Set only
	for _, t := range heads {
		e := a.newEntry(t.q)
		e.ticket, e.value = t, t.q.entryValue(t.request)
		a.entries = append(a.entries, e)
		if t.Enter(lease) {
			a.requeued = true
		}
	}
	return a
}

// newEntry returns an entry of the attempt, with a key that no other entry uses.
func (a *attempt) newEntry(q *Queue) *entry {
	e := &a.room.entry
	if len(a.entries) > 0 {
		e = new(entry)
	}
	e.q, e.of, e.wait.e = q, a, e
	if q.limit != nil {
		e.wait.permit = &permit{w: &e.wait, Waiter: permits.Waiter{Of: q.limit, Weight: q.weight}}
	}
	for {
		e.id = q.shared.keys.NewID(a.lease)
		e.key = q.key(e.id)
		if q.shared.keys.Register(e.key, a.lease, suspect{e}) {
			return e
		}
	}
}

// toFront puts the entries of the attempt into their queues, unless that is done, and returns when they hold: nothing
// is ahead of them, no lock delay runs, and their lease is trusted. It waits for one queue after the other: what is
// free ahead of an entry stays free.
func (a *attempt) toFront(ctx context.Context, c condition) error {
	if first := a.entries[0]; first.stage < placed {
		if err := a.put(ctx, c); err != nil {
			return err
		}
		telemetry.Queued(ctx, first.wait.position)
		if c.now && first.wait.ahead != nil {
			return ErrOccupied
		}
	}
	if a.waiting() != nil || a.lease.Check() != nil || a.lookIsOld() || ctx.Err() != nil {
		if err := a.awaitFront(ctx); err != nil {
			return err
		}
	}
	telemetry.Verified(ctx)
	return nil
}

// awaitFront waits until the entries of the attempt hold. It ends with the lease: then they are gone, or will be,
// whatever happens ahead of them. The lock delay of one runs while another one waits, so all delays together take no
// longer than one.
func (a *attempt) awaitFront(ctx context.Context) error {
	ctx, cancel := calls.UntilLost(ctx, a.lease)
	defer cancel()
	for _, e := range a.entries {
		if err := e.wait.untilNoneAhead(ctx); err != nil {
			return err
		}
	}
	a.delaysEnd = time.Now()
	for _, e := range a.entries {
		if end := e.wait.delay.until; end.After(a.delaysEnd) {
			a.delaysEnd = end
		}
	}
	for _, e := range a.entries {
		if err := e.wait.untilTrusted(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waiting returns the first entry that is not at the front of its queue, or whose lock delay has not ended; nil if
// there is none.
func (a *attempt) waiting() *entry {
	for _, e := range a.entries {
		if e.stage < placed || e.wait.ahead != nil || e.wait.delay.begun() {
			return e
		}
	}
	return nil
}

// saw records that all entries stood at a revision as they were put, by the reply to a request that was sent then.
func (a *attempt) saw(revision int64, sent time.Time) {
	a.revision, a.lookSent, a.stoodAt = revision, sent, sent
}

// lookIsOld reports whether the attempt must look at its entries again before it holds.
func (a *attempt) lookIsOld() bool {
	return time.Since(a.lookSent) > polls.LookLasts(a.q.shared.lockDelay)
}

// canQueueAgain reports whether an attempt that has failed with err is worth another one with new entries. If so, the
// old ones are taken care of.
func (a *attempt) canQueueAgain(ctx context.Context, err error) bool {
	switch {
	case errors.Is(err, holdfast.ErrClosed):
		return false
	case a.lease.Lost() != nil:
		a.abandon()
		return true
	case ctx.Err() != nil:
		return false
	case etcderr.Classify(err) == etcderr.LeaseGone:
		a.q.host.LeaseGone(ctx, a.lease, clientv3.NoLease, err) // etcd has told this attempt before the session
		a.abandon()
		return true
	case isUseless(err) || errors.Is(err, layout.ErrEpochMoved):
		a.entries[0].Log().Warn("holdfast: queueing again at the back: the waiting entry can no longer be used",
			"reason", err)
		for _, e := range a.entries {
			e.q.host.Go(func(context.Context) { _ = e.remove(a.lease.Context()) }) // joined by Close
		}
		return true
	default:
		return false
	}
}

// isUseless reports whether an attempt failed because it cannot hold by its entries. A holder that they waited for may
// have been revoked.
func isUseless(err error) bool {
	return errors.Is(err, ErrEntryGone) || errors.Is(err, errPlaceUnknown)
}

// abandon abandons each entry.
func (a *attempt) abandon() {
	for _, e := range a.entries {
		e.abandon()
	}
}
