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
)

// giveUpWait is how long a call goes on after its context has ended: to hear the
// answer to a request that was just sent, and then to see its entry gone. etcd
// answers in far less, and the caller leaves nothing behind. If it does not
// answer, the call returns and the session goes on.
const giveUpWait = 250 * time.Millisecond

// ErrOccupied is TryAcquire's answer when the queue has a holder or waiters.
var ErrOccupied = errOccupied

// ErrUnconfirmed is TryAcquire's answer when the queue has only entries of
// earlier attempts or holds of this session that are over.
var ErrUnconfirmed = errors.New("etcd has not confirmed yet that an earlier entry of this session is gone; try again")

// Request is what a caller brings to a queue.
type Request struct {
	Value   func() string // of the entry in etcd, asked for when that is put
	MaxHold time.Duration // the hold is lost after it; 0: never
	Auditor audit.Auditor // told of the hold; nil: the session's logger is

	telemetry *telemetry.Acquisition // set by measured
}

// Acquire waits in line and returns the hold of a verified entry. It ends with
// ctx's error, holdfast.ErrClosed, or what etcd said that no retry can mend;
// then nothing is held. If etcd did not answer, an entry may still stand or
// appear; the session removes it once etcd answers.
//
// A lease lost on the way costs the place, not the call: it queues again under
// the next lease.
func (q *Queue) Acquire(ctx context.Context, r Request) (*Hold, error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	return q.measured(ctx, r, func(ctx context.Context, r Request) (*Hold, error) {
		t := q.ticket(r.Value)
		return q.inLine(ctx, q.local.join(t, false), t, r)
	})
}

// inLine waits for the ticket's turn, and then for the hold.
func (q *Queue) inLine(ctx context.Context, ln *line, t *ticket, r Request) (*Hold, error) {
	var err error
	select {
	case from := <-t.turn:
		return q.acquire(ctx, ln, t, r, from.entry, condition{})
	case <-ctx.Done():
		err = fmt.Errorf("%w; queued behind another goroutine of this session", backoff.ContextErr(ctx))
	case <-q.sess.Context().Done():
		err = holdfast.ErrClosed
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
	if err := q.local.busy(q); err != nil {
		return nil, err // in this very session
	}
	open, cancel := q.untilClosed(ctx)
	defer cancel()
	if err := q.occupied(open); err != nil {
		return nil, q.orClosed(ctx, err)
	}
	t := q.ticket(r.Value)
	ln := q.local.join(t, true)
	if ln == nil {
		return nil, ErrOccupied // meanwhile
	}
	return q.acquire(ctx, ln, t, r, (<-t.turn).entry, condition{empty: true}) // its turn is at once
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

// acquire takes the head of the line from its turn to a hold, or ends the turn.
// e is the entry that was put for it, or nil.
func (q *Queue) acquire(ctx context.Context, ln *line, t *ticket, r Request, e *entry, c condition) (*Hold, error) {
	policy := q.sess.RetryPolicy()
	policy.Attempt = 0 // a wait has no bound but its context
	open, cancel := q.untilClosed(ctx)
	defer cancel()
	deleted := false // an entry of this attempt was deleted by another client
	err := backoff.Retry(open, policy, func(ctx context.Context) error {
		if e == nil {
			lease, err := q.sess.Await(ctx)
			if err != nil {
				return backoff.Final(err)
			}
			e = ln.enter(t, lease)
			e.anew = e.anew || deleted
		}
		err := e.toFront(ctx, c)
		if err != nil && q.disposed(ctx, e, err) {
			e, deleted = nil, deleted || errors.Is(err, errEntryGone)
			return backoff.Again(err)
		}
		return backoff.Final(err)
	})
	if err == nil {
		e.advance(held)
		ln.held = e.lease
		return newHold(ln, e, e.revision, r), nil
	}
	waited := q.waitedFor(ctx, e)
	q.giveUp(ln, e)
	if text := waited(); text != "" {
		err = fmt.Errorf("%w%s", err, text)
	}
	return nil, q.orClosed(ctx, err)
}

// untilClosed is ctx as long as the session is open: what a call sends and
// pauses for must not outlast it.
func (q *Queue) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(q.sess.Context(), func() { cancel(holdfast.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// orClosed is err, or why what is untilClosed(ctx) has ended before ctx.
func (q *Queue) orClosed(ctx context.Context, err error) error {
	if ctx.Err() == nil && q.sess.Context().Err() != nil {
		return holdfast.ErrClosed
	}
	return err
}

// toFront puts the entry in the queue, unless that is done, and waits until it
// may hold: a read has seen it at the front, no lock delay runs, and its lease
// can be trusted.
func (e *entry) toFront(ctx context.Context, c condition) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A waiter whose own lease is gone must not wait on, whatever happens ahead.
	defer context.AfterFunc(e.lease.Context(), func() { cancel(e.lease.Lost()) })()

	if e.stage < placed {
		sending, done := e.sending(ctx)
		err := e.put(ctx, sending, c)
		done()
		if err != nil {
			return err
		}
		telemetry.Queued(ctx, e.position)
	}
	for {
		var err error
		switch {
		case ctx.Err() != nil:
			return backoff.ContextErr(ctx)
		case e.ahead != nil:
			if err = e.awaitAhead(ctx); err == nil {
				telemetry.Woken(ctx)
			}
		case e.delayed() > 0:
			// No read afterwards: an entry that has gone meanwhile went with its
			// lease, and then those behind it delay as well.
			err = e.settled(ctx)
		case e.lease.Check() != nil:
			// Suspended at the front: the entry may have been removed by the time
			// that the lease is trusted again.
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

// sending returns the context for a request that puts the entry. It ends with
// the lease, and giveUpWait after ctx: a request that is cut off leaves open what
// it did, one that is answered does not.
func (e *entry) sending(ctx context.Context) (context.Context, context.CancelFunc) {
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	callerEnded := context.AfterFunc(ctx, func() {
		forget := context.AfterFunc(e.lease.Context(), cancel) // at once if it is lost
		time.AfterFunc(giveUpWait, func() { forget(); cancel() })
	})
	return sctx, func() {
		callerEnded()
		cancel()
	}
}

// disposed reports whether an attempt that failed is worth another with a new
// entry; then the old one is taken care of.
func (q *Queue) disposed(ctx context.Context, e *entry, err error) bool {
	switch {
	case errors.Is(err, holdfast.ErrClosed):
		return false
	case e.lease.Lost() != nil:
		e.abandon()
		return true
	case ctx.Err() != nil:
		return false
	case etcderr.Classify(err) == etcderr.LeaseGone:
		q.sess.LeaseGone(ctx, e.lease, err) // etcd knew before the session did
		e.abandon()
		return true
	case errors.Is(err, errEntryGone) || errors.Is(err, errEpochMoved):
		q.sess.Logger().Warn("holdfast: a waiting entry was removed or outdated; queueing again at the back",
			"queue", q.kind, "name", q.name, "key", e.key, "lease", fmt.Sprintf("%x", int64(e.lease.ID())), "reason", err)
		q.sess.Go(func(context.Context) { _ = e.remove(e.lease.Context()) })
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
	if e.stage < created {
		_ = ln.handOff(e) // which sends nothing
		return
	}
	done := ln.handOffLater(e)
	patience := time.NewTimer(giveUpWait)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		ln.callerReturned(e)
	}
}
