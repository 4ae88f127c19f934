package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/lease"
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
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.at.Kind, q.at.Name)
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
	return single(acquire(ctx, []turn{{ln, t}}, e, condition{}))
}

// single returns the hold of an acquisition that has one.
func single(holds []*Hold, err error) (*Hold, error) {
	if err != nil {
		return nil, err
	}
	return holds[0], nil
}

// TryAcquire returns the hold if the queue is empty, and ErrOccupied, with the place
// that the caller would have had, or ErrUnconfirmed otherwise. It waits for etcd's answers and for no other holder.
func (q *Queue) TryAcquire(ctx context.Context, r Request) (_ *Hold, err error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.at.Kind, q.at.Name)
	defer func() { q.reportAcquire(ctx, r, err) }()

	if q.sem != nil {
		return q.tryPermit(ctx, r)
	}
	if err := q.shared.occupancy(q); err != nil {
		return nil, err // by a goroutine of this session
	}
	if err := checkEmpty(ctx, []*Queue{q}); err != nil {
		return nil, err
	}
	t := q.newTicket(r)
	ln := q.shared.join(t, true)
	if ln == nil {
		return nil, ErrOccupied // meanwhile, by a goroutine of this session
	}
	return single(acquire(ctx, []turn{{ln, t}}, <-t.turn, condition{empty: true})) // its turn has come at once
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

// turn is a ticket that is the head of its line.
type turn struct {
	line   *line
	ticket *ticket
}

// acquire takes the heads of some lines to their holds, or ends their turns. A lock has
// one line, a Set one for each of its queues. e is the entry that the previous head has
// put, or nil.
//
// Each round is an attempt with entries of its own. A round that loses its lease
// or an entry is followed by another one.
func acquire(ctx context.Context, turns []turn, e *entry, c condition) ([]*Hold, error) {
	host := turns[0].line.shared.host
	var pauses pauses
	deleted := false // another client deleted an entry of an earlier round
	for {
		if e == nil {
			lease, err := host.Await(ctx)
			if err != nil {
				return nil, fail(ctx, turns, nil, err)
			}
			e = newEntries(turns, lease, deleted)
		}
		err := e.toFront(ctx, c)
		if err == nil {
			return newHolds(turns, e.set), nil
		}
		if !e.canQueueAgain(ctx, err) {
			return nil, fail(ctx, turns, e, err)
		}
		e, deleted = nil, deleted || errors.Is(err, errEntryGone)
		if ended := pauses.next(ctx, host, err); ended != nil {
			return nil, fail(ctx, turns, nil, fmt.Errorf("%w; last error: %w", ended, err))
		}
	}
}

// newEntries returns the first of the entries of an attempt. With requeued it holds only
// after the lock delay.
func newEntries(turns []turn, lease *lease.Lease, requeued bool) *entry {
	first := turns[0].line.newEntry(turns[0].ticket, lease)
	set := append(first.alone[:0], first) // allocates for a Set only
	for _, t := range turns[1:] {
		set = append(set, t.line.newEntry(t.ticket, lease))
	}
	for _, e := range set {
		e.set, e.requeued = set, e.requeued || requeued
	}
	return first
}

// toFront puts the entries of the attempt into their queues, unless that is done, and
// returns when they hold: nothing is ahead of them, no lock delay runs, and their lease
// is trusted. It waits for one queue after the other: what is free ahead of an entry
// stays free.
func (e *entry) toFront(ctx context.Context, c condition) error {
	if e.stage < placed {
		if err := e.put(ctx, c); err != nil {
			return err
		}
		telemetry.Queued(ctx, e.position)
		if c.now && e.ahead != nil {
			return errOccupied
		}
	}
	if e.waiting() != nil || e.lease.Check() != nil || e.lookIsOld() || ctx.Err() != nil {
		if err := e.awaitFront(ctx); err != nil {
			return err
		}
	}
	telemetry.Verified(ctx)
	return nil
}

// awaitFront waits until the entries of the attempt hold. It ends with the lease: then they are gone, or will be,
// whatever happens ahead of them. The lock delay of one runs while another one waits, so all delays together take no
// longer than one.
func (e *entry) awaitFront(ctx context.Context) error {
	ctx, cancel := e.untilLost(ctx)
	defer cancel()
	for _, m := range e.set {
		if err := m.awaitNoneAhead(ctx); err != nil {
			return err
		}
	}
	for _, m := range e.set {
		if err := m.awaitDelay(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitNoneAhead waits until nothing is ahead of the entry.
func (e *entry) awaitNoneAhead(ctx context.Context) error {
	await := e.awaitAhead
	if e.permit != nil {
		await = e.awaitPermit
	}
	for e.ahead != nil {
		if ctx.Err() != nil {
			return backoff.ContextErr(ctx)
		}
		if err := await(ctx); err != nil {
			return err
		}
		telemetry.Woken(ctx)
	}
	return nil
}

// awaitDelay waits until no lock delay runs for an entry that nothing is ahead of, and its lease is trusted.
func (e *entry) awaitDelay(ctx context.Context) error {
	for {
		var err error
		switch {
		case ctx.Err() != nil:
			return backoff.ContextErr(ctx)
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
		case e.lookIsOld():
			err = e.verify(ctx)
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}
