package queue

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// attempt is one round of an acquisition, under one lease: the entries that one Txn puts, one in each queue, until they
// hold or are given up. One goroutine at a time works on it; a hand-off passes it to another caller.
type attempt struct {
	lease   *lease.Lease
	q       *Queue // of the first entry; only the attempt of a Set has more
	entries []*entry
	after   *entry // the put compares that this entry stands, and removes it; or nil
	room    room   // for the entry of a lock

	revision int64     // of the store, at the latest look or put, which has shown all entries as they were put
	lookSent time.Time // when that was sent

	told    bool // OnWait has heard that the attempt is first, and waits for a delay
	delayed bool // a reply has said that dead claims are out of the way
	late    bool // that reply came late: see noteReply

	unansweredAt int64 // gate of the latest unanswered copy of the put; 0 if all were answered
}

// room holds the only entry of a lock's attempt, and its grant, so that a lock allocates them at once.
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
	if q.At.Foreign && q.shared.isUnclaimed(q.At) {
		q = q.withoutClaims()
	}
	e.q, e.of, e.wait.e = q, a, e
	if q.limit != 0 {
		e.wait.permit = &permit{w: &e.wait}
	}
	for {
		e.id = q.shared.keys.NewID(a.lease)
		e.key, e.claim = q.keys(e.id)
		e.home = e.key
		if q.shared.keys.Register(e.home, a.lease, suspect{e}) {
			return e
		}
	}
}

// mayHold reports whether the attempt holds, by what the latest look or the put has shown: nothing is ahead of its
// entries, neither an entry nor a claim, the lease is trusted, and the look is not old.
func (a *attempt) mayHold() bool {
	isOld := time.Since(a.lookSent) > a.q.shared.lookLasts
	return a.waiting() == nil && !a.late && a.lease.Check() == nil && !isOld
}

// awaitFront waits until the attempt holds. It waits for one queue after the other: what is free ahead of an entry
// stays free. It ends with the lease, because then the entries are gone, or will be, whatever happens ahead of them.
func (a *attempt) awaitFront(ctx context.Context) error {
	ctx, cancel := lease.UntilLost(ctx, a.lease)
	defer cancel()
	for _, e := range a.entries {
		if err := e.wait.untilNoEntryAhead(ctx); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		var err error
		switch {
		case a.waiting() != nil:
			err = a.passClaims(ctx)
		case a.late:
			err = a.delayOnceMore(ctx)
		case a.mayHold():
			return nil
		default:
			// The session is suspended, or the latest look is old. Meanwhile another client may have deleted an entry.
			if err = a.lease.AwaitConnected(ctx); err == nil {
				err = a.entries[0].wait.look(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	return retry.ContextErr(ctx)
}

// waiting returns the first entry with something ahead of it, or that no look has placed yet; nil if there is none.
func (a *attempt) waiting() *entry {
	for _, e := range a.entries {
		if !e.wait.isFree() {
			return e
		}
	}
	return nil
}

// canQueueAgain reports whether another attempt, with new entries, may succeed after this one failed with err. If so,
// it has removed the old entries, or has abandoned them with their lease.
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

// removeAll removes what stands of the attempt, and waits for that until ctx ends. Otherwise the session would wait for
// itself:
//
//	rev 10  the attempt puts entry and claim
//	rev 12  the entry is deleted by hand. The session lives, and the claim stands
//	rev 14  the next attempt puts its entry, with the claim of rev 10 ahead: ToldWithin passes before it may hold
func (a *attempt) removeAll(ctx context.Context) {
	for _, e := range a.entries {
		select {
		case <-inBackground(e.q.host, func() { _ = e.remove(a.lease.Context()) }):
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
