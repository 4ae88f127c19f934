package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/view"
)

// Request is what a caller wants of a queue.
type Request struct {
	Owner string // for the entry's value; empty: the session's
	Data  string // for the entry's value: a candidate's

	OnWait func(view.Place) // is called by Acquire while it waits; may be nil

	telemetry *telemetry.Acquisition // set by the queue
}

// Acquire queues, waits, and returns the grant. It ends with ctx's error,
// holdfast.ErrClosed, or what etcd said that no retry can mend; then nothing is
// held. With ctx's error comes the place in the queue, as a *PlacedError. If etcd did
// not answer, an entry may still stand or appear, which the session removes once etcd
// answers.
//
// A lease that is lost on the way costs the place in the queue and does not end the
// call: it queues again, at the back, under the next lease.
func (q *Queue) Acquire(ctx context.Context, r Request) (*Grant, error) {
	return single(q.queueUp(ctx, r, nil))
}

// Requeue is Acquire for a caller who holds the name, and queues again, at the back. It calls release once the caller
// has a place in the line, where HandOff finds it: so one Txn removes the old entry and puts the new one. Goroutines of
// this session that were already waiting go first. If release returns an error, Requeue queues nothing and returns
// that.
func (q *Queue) Requeue(ctx context.Context, r Request, release func() error) (*Grant, error) {
	return single(q.queueUp(ctx, r, release))
}

// single returns the grant of an acquisition that has one.
func single(grants []*Grant, err error) (*Grant, error) {
	if err != nil {
		return nil, err
	}
	return grants[0], nil
}

// queueUp is Requeue or, without release, Acquire.
func (q *Queue) queueUp(ctx context.Context, r Request, release func() error) (_ []*Grant, err error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.at.Kind, q.at.Name)
	defer func() { r.reportEnd(ctx, err) }()

	t := newTicket(q, r)
	defer t.endWaits()
	ln := q.shared.join(t, false)
	if release != nil {
		if err := release(); err != nil {
			ln.withdraw(t)
			return nil, err
		}
	}
	if t.place != nil {
		t.tell(func() view.Place { return ln.place(t) })
	}
	a, err := ln.awaitTurn(ctx, t)
	if err != nil {
		return nil, err
	}
	return acquire(ctx, []turn{{ln, t}}, a, condition{})
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

// reportEnd reports to telemetry how a call that returned err ended. The owner of a grant reports that.
func (r Request) reportEnd(ctx context.Context, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrOccupied):
		r.telemetry.Failed("occupied", false)
	case errors.Is(err, holdfast.ErrClosed):
		r.telemetry.Failed("closed", true)
	case ctx.Err() != nil:
		r.telemetry.Failed("canceled", false)
	case errors.Is(err, holdfast.ErrLost):
		r.telemetry.Failed("lost", true)
	default:
		r.telemetry.Failed("failed", true)
	}
}

// turn is a ticket that is the head of its line.
type turn struct {
	line   *line
	ticket *ticket
}

// acquire takes the heads of some lines to their holds, or ends their turns. A lock has
// one line, a Set one for each of its queues. a is the attempt whose entry the previous head has
// put, or nil.
//
// A round that loses its lease or an entry is followed by another one.
func acquire(ctx context.Context, turns []turn, a *attempt, c condition) ([]*Grant, error) {
	host := turns[0].line.shared.host
	var pauses pauses
	deleted := false // another client deleted an entry of an earlier round
	for {
		if a == nil {
			lease, err := host.Await(ctx)
			if err != nil {
				return nil, fail(ctx, turns, nil, err)
			}
			a = newAttempt(turns, lease, deleted)
		}
		err := a.toFront(ctx, c)
		if err == nil {
			return newGrants(turns, a), nil
		}
		if !a.canQueueAgain(ctx, err) {
			return nil, fail(ctx, turns, a, err)
		}
		a, deleted = nil, deleted || errors.Is(err, errEntryGone)
		if ended := pauses.next(ctx, host, err); ended != nil {
			return nil, fail(ctx, turns, nil, fmt.Errorf("%w; last error: %w", ended, err))
		}
	}
}
