package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/session"
)

// giveUpWait is how long a failed acquisition waits for its entry to be gone
// before it returns. Reachable, etcd answers in far less, and the caller finds
// nothing of it left; cut off, the caller must not wait, and the session goes
// on removing.
const giveUpWait = 500 * time.Millisecond

// ErrOccupied is TryAcquire's answer when somebody else holds or waits.
var ErrOccupied = errOccupied

// Request is what a caller brings to a queue.
type Request struct {
	Value   func() string   // of the entry in etcd, asked for when that is put
	MaxHold time.Duration   // the hold is lost after it; 0: never
	Auditor fencing.Auditor // told of the hold; nil: the session's logger is

	telemetry *telemetry.Acquisition // set by measured
}

// Acquire waits in line and returns the hold of a verified entry. It ends with
// ctx's error, session.ErrClosed, or what etcd said that no retry can mend;
// then nothing is held, and no entry stands or appears later.
//
// A lease lost on the way costs the place, not the call: it queues again under
// the next lease.
func (q *Queue) Acquire(ctx context.Context, r Request) (*Hold, error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	return q.measured(ctx, r, func(ctx context.Context, r Request) (*Hold, error) {
		ln, t := q.local.join(q, r.Value, false)
		return q.inLine(ctx, ln, t, r)
	})
}

// inLine waits for the ticket's turn, and then for the hold.
func (q *Queue) inLine(ctx context.Context, ln *line, t *ticket, r Request) (*Hold, error) {
	var err error
	select {
	case from := <-t.turn:
		return q.acquire(ctx, ln, r, from, condition{})
	case <-ctx.Done():
		err = backoff.ContextErr(ctx)
	case <-q.sess.Base().Context().Done():
		err = session.ErrClosed
	}
	q.stepOut(ln, t)
	return nil, err
}

// stepOut gives a ticket back, or ends the turn if that has come meanwhile.
func (q *Queue) stepOut(ln *line, t *ticket) {
	if !ln.leave(t) {
		from := <-t.turn
		q.giveUp(ln, from.entry)
	}
}

// TryAcquire returns the hold if the queue is empty, and ErrOccupied otherwise.
// It never waits for another holder, only for answers.
func (q *Queue) TryAcquire(ctx context.Context, r Request) (*Hold, error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	return q.measured(ctx, r, q.tryAcquire)
}

func (q *Queue) tryAcquire(ctx context.Context, r Request) (*Hold, error) {
	if q.local.busy(q) {
		return nil, ErrOccupied // by this very session
	}
	open, cancel := q.untilClosed(ctx)
	defer cancel()
	switch occupied, err := q.occupied(open); {
	case err != nil:
		return nil, q.orClosed(ctx, err)
	case occupied:
		return nil, ErrOccupied
	}
	ln, t := q.local.join(q, r.Value, true)
	if t == nil {
		return nil, ErrOccupied // meanwhile
	}
	return q.acquire(ctx, ln, r, <-t.turn, condition{empty: true}) // its turn is at once
}

func (q *Queue) usable(ctx context.Context) error {
	if err := q.Err(); err != nil {
		return err
	}
	if ctx == nil {
		return &session.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	return backoff.ContextErr(ctx)
}

// acquire takes the head of the line from its turn to a hold, or ends the turn.
func (q *Queue) acquire(ctx context.Context, ln *line, r Request, from turn, c condition) (*Hold, error) {
	e, v := from.entry, from.view
	policy := q.sess.Base().RetryPolicy()
	policy.Attempt = 0 // a wait is as long as it is
	open, cancel := q.untilClosed(ctx)
	defer cancel()
	err := backoff.Retry(open, policy, func(ctx context.Context) (err error) {
		if e == nil {
			lease, err := q.sess.Base().Await(ctx)
			if err != nil {
				return backoff.Final(err)
			}
			e = newEntry(q, lease, r.Value())
		}
		if v, err = e.toFront(ctx, v, c); err != nil && q.disposed(ctx, e, err) {
			e, v = nil, view{}
			return backoff.Again(err)
		}
		return backoff.Final(err)
	})
	if err == nil {
		return newHold(ln, e, v.revision, r), nil
	}
	q.giveUp(ln, e)
	return nil, q.orClosed(ctx, err)
}

// untilClosed is ctx as long as the session is open: what a call sends and
// pauses for must not outlast it.
func (q *Queue) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(q.sess.Base().Context(), func() { cancel(session.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// orClosed is err, or why what is untilClosed(ctx) has ended before ctx.
func (q *Queue) orClosed(ctx context.Context, err error) error {
	if ctx.Err() == nil && q.sess.Base().Context().Err() != nil {
		return session.ErrClosed
	}
	return err
}

// toFront puts the entry in the queue, unless its predecessor has done so, and
// waits until a read sees nobody ahead of it while its lease can be trusted.
func (e *entry) toFront(ctx context.Context, v view, c condition) (view, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A waiter whose own lease is gone must not wait on, whatever happens ahead.
	defer context.AfterFunc(e.lease.Context(), func() { cancel(e.lease.Lost()) })()

	var err error
	if e.rev == 0 {
		v, err = e.put(ctx, c)
	}
	if err == nil {
		telemetry.Queued(ctx, v.position)
	}
	for err == nil && (v.ahead != nil || e.lease.Check() != nil) {
		if v.ahead != nil {
			if err = e.q.awaitGone(ctx, v.ahead); err == nil {
				telemetry.Woken(ctx)
			}
		} else {
			// Suspended at the front: what has been seen may have been removed
			// by the time that the lease is trusted again.
			err = e.lease.AwaitConnected(ctx)
		}
		if err == nil {
			v, err = e.verify(ctx)
		}
	}
	if err == nil {
		telemetry.Verified(ctx)
	}
	return v, err
}

// disposed reports whether an attempt that failed is worth another with a new
// entry; then the old one is taken care of.
func (q *Queue) disposed(ctx context.Context, e *entry, err error) bool {
	switch {
	case errors.Is(err, session.ErrClosed):
		return false
	case e.lease.Context().Err() != nil:
		return true // the session revokes the lease, entries and all
	case ctx.Err() != nil:
		return false
	case backoff.Classify(err) == backoff.LeaseGone:
		q.sess.Base().LeaseGone(ctx, e.lease, err) // etcd knew before the session did
		return true
	case errors.Is(err, errEntryGone) || errors.Is(err, errEpochMoved):
		q.sess.Logger().Warn("holdfast: a waiting entry was removed or outdated; queueing again at the back",
			"queue", q.kind, "name", q.name, "key", e.key, "lease", fmt.Sprintf("%x", int64(e.lease.ID())), "reason", err)
		q.sess.Base().Go(func(context.Context) { _ = e.clear(e.lease.Context()) })
		return true
	default:
		return false
	}
}

// giveUp ends a turn without a hold.
func (q *Queue) giveUp(ln *line, e *entry) {
	if e == nil {
		ln.advance() // etcd has nothing of it
		return
	}
	done := ln.passLater(e)
	patience := time.NewTimer(giveUpWait)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
}
