package queue

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
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

	revision int64     // of the store, at the latest look or put
	lookSent time.Time // when that was sent

	told    bool // its caller was told that it is first, and waits for a delay
	delayed bool // a reply has said that dead claims are out of the way
	late    bool // it came late: see noteReply

	unansweredAt int64 // gate of the latest unanswered copy of the put; 0 if all were answered
}

// room is where the entry of an attempt with one is, and its grant, so that a lock allocates them at once.
type room struct {
	entry   entry
	entries [1]*entry
	grant   Grant
	grants  [1]*Grant
}

// newAttempt returns an attempt of the heads of some lines.
func newAttempt(heads []*ticket, lease *lease.Lease) *attempt {
	a := &attempt{lease: lease, q: heads[0].q}
	a.entries = a.room.entries[:0] // allocates for a Set only
	for _, t := range heads {
		e := a.newEntry(t.q)
		e.ticket, e.value = t, t.q.entryValue(t.request)
		a.entries = append(a.entries, e)
	}
	return a
}

// newEntry returns an entry of the attempt, with a key that no other entry uses.
func (a *attempt) newEntry(q *Queue) *entry {
	e := &a.room.entry
	if len(a.entries) > 0 {
		e = new(entry)
	}
	if q.shared.isUnclaimed(q.At) {
		q = q.withoutClaims()
	}
	e.q, e.of, e.wait.e = q, a, e
	if q.limit != 0 {
		e.wait.permit = &permit{w: &e.wait}
	}
	for {
		e.id = q.shared.keys.NewID(a.lease)
		e.key = q.key(e.id)
		e.claim, e.home = q.claimKey(e.key), e.key
		if q.shared.keys.Register(e.home, a.lease, suspect{e}) {
			return e
		}
	}
}

// toFront puts the entries of the attempt into their queues, unless that is done, and returns when they hold: nothing
// is ahead of them, neither an entry nor a claim, and their lease is trusted. It waits for one queue after the other:
// what is free ahead of an entry stays free.
func (a *attempt) toFront(ctx context.Context, c condition) error {
	if first := a.entries[0]; first.stage < created {
		if first.wait.permit != nil {
			first.wait.permit.tries = c.now
		}
		if err := a.put(ctx, c); err != nil {
			return err
		}
		telemetry.Queued(ctx, first.wait.position)
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
// whatever happens ahead of them.
func (a *attempt) awaitFront(ctx context.Context) error {
	ctx, cancel := calls.UntilLost(ctx, a.lease)
	defer cancel()
	for _, e := range a.entries {
		if err := e.wait.untilNoEntryAhead(ctx); err != nil {
			return err
		}
	}
	for {
		var err error
		switch {
		case ctx.Err() != nil:
			return backoff.ContextErr(ctx)
		case a.waiting() != nil:
			err = a.passClaims(ctx)
		case a.late:
			err = a.delayOnceMore(ctx)
		case a.lease.Check() != nil:
			// Suspended at the front. By the time that the lease is trusted again, another client may have deleted an entry.
			if err = a.lease.AwaitConnected(ctx); err == nil {
				err = a.entries[0].wait.look(ctx)
			}
		case a.lookIsOld():
			err = a.entries[0].wait.look(ctx)
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// waiting returns the first entry that something stands ahead of, or of which that is not known; nil if there is none.
func (a *attempt) waiting() *entry {
	for _, e := range a.entries {
		if !e.wait.isFree() {
			return e
		}
	}
	return nil
}

// saw records that all entries stood at a revision as they were put, by the reply to a request that was sent then.
func (a *attempt) saw(revision int64, sent time.Time) {
	a.revision, a.lookSent = revision, sent
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
	case errors.Is(err, ErrEntryGone) || errors.Is(err, layout.ErrEpochMoved):
		a.entries[0].Log().Warn("holdfast: queueing again at the back: the waiting entry can no longer be used",
			"reason", err)
		a.removeAll(ctx)
		return true
	default:
		return false
	}
}

// removeAll removes what stands of the attempt, and waits for that until ctx ends. A claim that is left behind an entry
// that was deleted by hand would be ahead of the next attempt, which would wait for its own poll.
func (a *attempt) removeAll(ctx context.Context) {
	for _, e := range a.entries {
		done := make(chan struct{})
		removal := func(context.Context) {
			defer close(done)
			_ = e.remove(a.lease.Context())
		}
		if !e.q.host.Go(removal) { // joined by Close
			return // closed: the lease is lost, and is revoked with all that stands on it
		}
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// abandon abandons each entry.
func (a *attempt) abandon() {
	for _, e := range a.entries {
		e.abandon()
	}
}
