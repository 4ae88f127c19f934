package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/view"
)

// ErrOccupied is TryAcquire's error if the queue has a holder or waiters.
var ErrOccupied = errOccupied

// ErrUnconfirmed is TryAcquire's error if all entries in the queue are left over
// from earlier attempts and holds of this session.
var ErrUnconfirmed = errors.New("etcd has not confirmed yet that an earlier entry of this session is gone; try again")

// Request is what a caller wants of a queue.
type Request struct {
	Owner string // for the entry's value; empty: the session's
	Mode  string // for the entry's value: "exclusive" for a lock
	Data  string // for the entry's value: a candidate's

	MinHold time.Duration // the name stays taken for so long, also after a release
	MaxHold time.Duration // the hold is lost after it; 0: never
	MaxIdle time.Duration // the hold is lost if its work makes no progress for so long; 0: never
	Auditor audit.Auditor // is told of the hold; nil: the session's logger is

	OnWait func(view.Place) // is called by Acquire while it waits; may be nil

	telemetry *telemetry.Acquisition // set by the queue
}

// Acquire queues, waits, and returns the hold. It ends with ctx's error,
// holdfast.ErrClosed, or what etcd said that no retry can mend; then nothing is
// held. With ctx's error comes the place in the queue, as a *PlacedError. If etcd did
// not answer, an entry may still stand or appear, which the session removes once etcd
// answers.
//
// A lease that is lost on the way costs the place in the queue and does not end the
// call: it queues again, at the back, under the next lease.
func (q *Queue) Acquire(ctx context.Context, r Request) (_ *Hold, err error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.kind, q.name)
	defer func() { q.reportAcquire(ctx, r, err) }()

	t := q.newTicket(r)
	defer t.endWaits()
	ln := q.shared.join(t, false)
	if t.place != nil {
		t.tell(func() view.Place { return ln.place(t) })
	}
	e, err := ln.awaitTurn(ctx, t)
	if err != nil {
		return nil, err
	}
	return ln.acquire(ctx, t, e, condition{})
}

// TryAcquire returns the hold if the queue is empty, and ErrOccupied, with the place
// that the caller would have had, or ErrUnconfirmed otherwise. It waits for etcd's answers and for no other holder.
func (q *Queue) TryAcquire(ctx context.Context, r Request) (_ *Hold, err error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.kind, q.name)
	defer func() { q.reportAcquire(ctx, r, err) }()

	if err := q.shared.occupancy(q); err != nil {
		return nil, err // by a goroutine of this session
	}
	if err := q.checkEmpty(ctx); err != nil {
		return nil, err
	}
	t := q.newTicket(r)
	ln := q.shared.join(t, true)
	if ln == nil {
		return nil, ErrOccupied // meanwhile, by a goroutine of this session
	}
	return ln.acquire(ctx, t, <-t.turn, condition{empty: true}) // its turn has come at once
}

func (q *Queue) usable(ctx context.Context) error {
	if err := q.Err(); err != nil {
		return err
	}
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	return backoff.ContextErr(ctx)
}

// acquire takes the head of the line to a hold, or ends its turn. e is the entry
// that the previous head has put for it, or nil.
//
// Each round is an attempt with an entry of its own. A round that loses its lease
// or its entry is followed by another one.
func (ln *line) acquire(ctx context.Context, t *ticket, e *entry, c condition) (*Hold, error) {
	var pauses pauses
	deleted := false // another client deleted the entry of an earlier round
	for {
		if e == nil {
			lease, err := ln.shared.host.Await(ctx)
			if err != nil {
				return nil, ln.fail(ctx, t, nil, err)
			}
			e = ln.newEntry(t, lease)
			e.requeued = e.requeued || deleted
		}
		err := e.toFront(ctx, c)
		if err == nil {
			e.reach(held)
			ln.heldUnder = e.lease
			h := newHold(ln, e)
			ln.holds(h)
			return h, nil
		}
		if !e.canQueueAgain(ctx, err) {
			return nil, ln.fail(ctx, t, e, err)
		}
		e, deleted = nil, deleted || errors.Is(err, errEntryGone)
		if ended := pauses.next(ctx, ln.shared.host, err); ended != nil {
			return nil, ln.fail(ctx, t, nil, fmt.Errorf("%w; last error: %w", ended, err))
		}
	}
}

// toFront puts the entry into the queue, unless that is done, and returns when it
// holds: nothing is ahead of it, no lock delay runs, and its lease is trusted.
func (e *entry) toFront(ctx context.Context, c condition) error {
	if e.stage < placed {
		if err := e.put(ctx, c); err != nil {
			return err
		}
		telemetry.Queued(ctx, e.position)
	}
	if e.ahead == nil && e.delayLeft() <= 0 && e.lease.Check() == nil && ctx.Err() == nil {
		telemetry.Verified(ctx)
		return nil // the queue was free
	}
	return e.awaitFront(ctx)
}

// awaitFront waits until the entry holds. It ends with the lease: then the entry is
// gone, or will be, whatever happens ahead of it.
func (e *entry) awaitFront(ctx context.Context) error {
	ctx, cancel := e.untilLost(ctx)
	defer cancel()
	for {
		var err error
		switch {
		case ctx.Err() != nil:
			return backoff.ContextErr(ctx)
		case e.ahead != nil:
			if err = e.awaitAhead(ctx); err == nil {
				telemetry.Woken(ctx)
			}
		case e.delayLeft() > 0:
			// The entry is not read again afterwards. If it has gone meanwhile, it
			// went with its lease, and then those behind it wait for a delay, too.
			e.tellWaiting(ctx)
			err = e.awaitRemovable(ctx)
		case e.lease.Check() != nil:
			// Suspended at the front. By the time that the lease is trusted again,
			// another client may have deleted the entry.
			if err = e.lease.AwaitConnected(ctx); err == nil {
				err = e.verify(ctx)
			}
		default:
			telemetry.Verified(ctx)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// canQueueAgain reports whether an attempt that has failed with err is worth
// another one with a new entry. If so, the old entry is taken care of.
func (e *entry) canQueueAgain(ctx context.Context, err error) bool {
	switch {
	case errors.Is(err, holdfast.ErrClosed):
		return false
	case e.lease.Lost() != nil:
		e.abandon()
		return true
	case ctx.Err() != nil:
		return false
	case etcderr.Classify(err) == etcderr.LeaseGone:
		e.q.host.LeaseGone(ctx, e.lease, err) // etcd has told this attempt before the session
		e.abandon()
		return true
	case errors.Is(err, errEntryGone) || errors.Is(err, errEpochMoved):
		e.log().Warn("holdfast: queueing again at the back: the waiting entry can no longer be used", "reason", err)
		e.q.host.Go(func(context.Context) { _ = e.remove(e.lease.Context()) }) // joined by Close
		return true
	default:
		return false
	}
}

// fail ends the turn of a call that failed with err, and returns the error for its
// caller.
func (ln *line) fail(ctx context.Context, t *ticket, e *entry, err error) error {
	if text := describeWait(ctx, e); text != "" {
		err = fmt.Errorf("%w%s", err, text)
	}
	first := e != nil && e.stage == placed && e.ahead == nil
	ln.giveUp(e)
	if err = ln.q.closedErr(ctx, err); first || ctx.Err() == nil && !errors.Is(err, errOccupied) {
		return err
	}
	return &PlacedError{stale(t.knownAhead()), err}
}

// giveUp ends a turn without a hold. It waits for the entry to be removed, for
// giveUpWait at most; the session goes on with it.
func (ln *line) giveUp(e *entry) {
	switch {
	case e == nil:
		ln.next() // nothing was put
	case e.stage < created:
		_ = ln.handOff(e) // sends nothing: the sweeper takes over
	default:
		ln.awaitRemoval(e, ln.handOffInBackground(e))
	}
}

// awaitRemoval waits until done is closed, giveUpWait at most.
func (ln *line) awaitRemoval(e *entry, done <-chan struct{}) {
	patience := time.NewTimer(giveUpWait)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		ln.callerReturned(e)
	}
}

// closedErr returns holdfast.ErrClosed if the session, not ctx, ended the call;
// otherwise err.
func (q *Queue) closedErr(ctx context.Context, err error) error {
	if ctx.Err() == nil && q.host.Context().Err() != nil {
		return holdfast.ErrClosed
	}
	return err
}

// describeWait returns what to add to the error of a call whose context has ended:
// what it was waiting for, unless that is another entry.
func describeWait(ctx context.Context, e *entry) string {
	switch {
	case ctx.Err() == nil:
		return ""
	case e == nil:
		return "; the session had no lease"
	case e.stage < placed:
		return "; etcd has not answered the request to queue"
	case e.ahead == nil && e.delayLeft() > 0:
		return "; it was first in the queue, and the lock delay had not passed"
	case e.ahead == nil:
		return "; it was first in the queue, and the session was not connected"
	default:
		return "" // the place says it
	}
}
