package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
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
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.kind, q.name)
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
	if e.waiting() != nil || e.lease.Check() != nil || ctx.Err() != nil {
		for _, m := range e.set {
			if err := m.awaitFront(ctx); err != nil {
				return err
			}
		}
	}
	telemetry.Verified(ctx)
	return nil
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
		case e.ahead != nil && e.permit != nil:
			if err = e.awaitPermit(ctx); err == nil {
				telemetry.Woken(ctx)
			}
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
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// canQueueAgain reports whether an attempt that has failed with err is worth
// another one with new entries. If so, the old ones are taken care of.
func (e *entry) canQueueAgain(ctx context.Context, err error) bool {
	switch {
	case errors.Is(err, holdfast.ErrClosed):
		return false
	case e.lease.Lost() != nil:
		e.abandonAll()
		return true
	case ctx.Err() != nil:
		return false
	case etcderr.Classify(err) == etcderr.LeaseGone:
		e.q.host.LeaseGone(ctx, e.lease, err) // etcd has told this attempt before the session
		e.abandonAll()
		return true
	case errors.Is(err, errEntryGone) || errors.Is(err, errEpochMoved):
		e.log().Warn("holdfast: queueing again at the back: the waiting entry can no longer be used", "reason", err)
		for _, m := range e.set {
			m.q.host.Go(func(context.Context) { _ = m.remove(m.lease.Context()) }) // joined by Close
		}
		return true
	default:
		return false
	}
}

// fail ends the turns of a call that failed with err, and returns the error for its
// caller.
func fail(ctx context.Context, turns []turn, e *entry, err error) error {
	t, first := turns[0].ticket, false
	if e != nil {
		waiting := cmp.Or(e.waiting(), e)
		if text := waiting.describeWait(ctx); text != "" {
			err = fmt.Errorf("%w%s", err, text)
		}
		t, first = waiting.ticket, waiting.stage == placed && waiting.ahead == nil
	} else if ctx.Err() != nil {
		err = fmt.Errorf("%w; the session had no lease", err)
	}
	giveUp(turns, e)
	if err = t.q.closedErr(ctx, err); first || ctx.Err() == nil && !errors.Is(err, errOccupied) {
		return err
	}
	return &PlacedError{stale(t.knownAhead()), err}
}

// giveUp ends turns without a hold. It waits for the entries to be removed, for
// giveUpWait at most; the session goes on with it.
func giveUp(turns []turn, e *entry) {
	if e == nil {
		for _, t := range turns {
			t.line.next() // nothing was put
		}
		return
	}
	removed := make([]<-chan struct{}, len(turns))
	set := e.set // each leaves by itself
	for i, m := range set {
		if m.stage < created {
			_ = turns[i].line.handOff(m) // sends nothing: the sweeper takes over
		} else {
			removed[i] = turns[i].line.handOffInBackground(m)
		}
	}
	patience, cancel := context.WithTimeout(context.Background(), giveUpWait)
	defer cancel()
	for i, m := range set {
		if removed[i] != nil {
			turns[i].line.awaitRemoval(patience, m, removed[i])
		}
	}
}

// awaitRemoval waits until done is closed, or ctx ends.
func (ln *line) awaitRemoval(ctx context.Context, e *entry, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
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
func (e *entry) describeWait(ctx context.Context) string {
	switch {
	case ctx.Err() == nil:
		return ""
	case e.stage < placed:
		return "; etcd has not answered the request to queue"
	case e.ahead == nil && e.delayLeft() > 0:
		return fmt.Sprintf("; it was first in the queue%s, and the lock delay had not passed", e.ofSet())
	case e.ahead == nil:
		return fmt.Sprintf("; it was first in %s, and the session was not connected", e.queues())
	default:
		return "" // the place says it
	}
}

// ofSet names the queue of an entry that is one of several.
func (e *entry) ofSet() string {
	if !e.ticket.inSet {
		return ""
	}
	return " of " + names.Quote(e.q.name)
}

func (e *entry) queues() string {
	if e.ticket.inSet {
		return "all queues"
	}
	return "the queue"
}
