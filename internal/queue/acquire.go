package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/places"
	"github.com/holdfast-go/holdfast/view"
)

// MaxSet is the largest number of queues in a Set: etcd limits a Txn to 128 comparisons, and a TryAcquire makes two for
// each queue.
const MaxSet = 63

// Set is several queues in which one attempt has an entry each. One Txn puts all entries, so they have one create
// revision, and two attempts that meet in several queues are in the same order in all of them. So they never wait for
// each other, however they name their queues. The attempt holds when each of its entries is at the front of its queue.
//
// There is a hold for each queue, in the order of the queues. They end together: what
// ends one of them ends all, with the same cause, and a release of one releases all.
type Set []*Queue

// Downgradable returns the queue as one acquisition uses it that is to hold alone first, and then beside readers: as a
// writer and as a reader. The entries of both stand from the beginning, so no writer can come in between.
func (q *Queue) Downgradable() Set { return Set{q, q.Readers()} }

// Acquire queues, waits, and returns a grant for each queue. It ends with ctx's error, holdfast.ErrClosed, what
// Request.Release returned, or what etcd said that no retry can mend; then nothing is held. With ctx's error comes the
// place in the queue, as a *places.Error. If etcd did not answer, an entry may still stand or appear, which the session
// removes once etcd answers.
//
// A lease that is lost on the way costs the place in the queue and does not end the call: it queues again, at the back,
// under the next lease.
func (s Set) Acquire(ctx context.Context, r Request) (_ []*Grant, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	q := s[0]
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.At.Kind, q.At.Name)
	defer func() { r.reportEnd(ctx, err) }()

	heads := s.join(r, false)
	t := heads[0] // with more than one, all are heads
	if r.OnWait != nil {
		defer t.teller.End()
	}
	if r.Release != nil {
		err = r.Release()
	}
	if err == nil {
		err = t.awaitTurn(ctx)
	}
	if err != nil {
		if !t.Cancel() { // its turn has come meanwhile
			<-t.Turn()
			giveUp(heads, t.attempt)
		}
		return nil, err
	}
	return acquire(ctx, heads, t.attempt, condition{})
}

func (s Set) usable(ctx context.Context) error {
	if len(s) == 0 {
		return errNoQueue
	}
	for _, q := range s {
		if err := q.usable(ctx); err != nil {
			return err
		}
	}
	return nil
}

// join gives the caller a ticket in each queue. Those of several queues have lines of their own, so each is the head at
// once. With ifEmpty, join returns nil if the line of a single queue is not empty.
func (s Set) join(r Request, ifEmpty bool) []*ticket {
	tickets := make([]*ticket, len(s))
	for i, q := range s {
		q.shared.orphans.Used(q.At)
		t := newTicket(q, r)
		if len(s) > 1 {
			t.Alone, t.inSet = true, true
		}
		if i > 0 {
			t.teller, t.request.telemetry = tickets[0].teller, nil
		}
		if !q.shared.lines.Join(&t.Ticket, q.At.Entries, ifEmpty) {
			return nil
		}
		tickets[i] = t
	}
	return tickets
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

// acquire takes the heads of some lines to their holds, or ends their turns. A lock has one line, a Set one for each of
// its queues. a is the attempt whose entry the previous head has put, or nil.
//
// A round that loses its lease or an entry is followed by another one.
func acquire(ctx context.Context, heads []*ticket, a *attempt, c condition) ([]*Grant, error) {
	host := heads[0].q.host
	var pauses calls.Pauses
	for {
		if a == nil {
			lease, err := host.Await(ctx)
			if err != nil {
				return nil, fail(ctx, heads, nil, c, err)
			}
			a = newAttempt(heads, lease)
		}
		err := a.toFront(ctx, c)
		if errors.Is(err, ErrOccupied) && c == (condition{}) { // a permit that does not fit
			if a, err = a.takeTurn(ctx); err == nil {
				err = a.toFront(ctx, c)
			}
		}
		if err == nil {
			return newGrants(a), nil
		}
		if !a.canQueueAgain(ctx, err) {
			return nil, fail(ctx, heads, a, c, err)
		}
		a = nil
		if ended := pauses.Next(ctx, host, err); ended != nil {
			return nil, fail(ctx, heads, nil, c, fmt.Errorf("%w; last error: %w", ended, err))
		}
	}
}

// fail ends the turns of a call that failed with err, and returns the error for its caller.
func fail(ctx context.Context, heads []*ticket, a *attempt, c condition, err error) error {
	t, rev, asked := heads[0], int64(0), ctx.Err() != nil || errors.Is(err, ErrOccupied)
	switch {
	case a != nil:
		e := cmp.Or(a.waiting(), a.entries[0])
		t, rev = e.ticket, e.rev
		isFirst := e.stage >= placed && e.wait.ahead == nil && (e.wait.permit == nil || len(e.wait.claims) > 0)
		asked = asked && !isFirst && (rev != 0 || c != condition{})
		if c.after == nil && c != (condition{}) && isFirst && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrInDelay, err)
		}
		if text := e.wait.describe(ctx); text != "" {
			err = fmt.Errorf("%w%s", err, text)
		}
	case ctx.Err() != nil:
		err, asked = fmt.Errorf("%w; the session had no lease", err), false
	}
	// The read of the place runs beside the removal, with its patience.
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), calls.GiveUpWait)
	defer cancel()
	place := make(chan view.Place, 1)
	if asked {
		go func() { place <- t.readPlace(patience, rev) }() // ends with patience
	}
	giveUp(heads, a)
	if err = calls.EndedBy(ctx, t.q.host, err); !asked {
		return err
	}
	return &places.Error{Place: <-place, Err: err}
}

// giveUp ends turns without a hold. It waits for the entries to be removed, for
// calls.GiveUpWait at most; the session goes on with it.
func giveUp(heads []*ticket, a *attempt) {
	if a == nil {
		for _, t := range heads {
			t.Next() // nothing was put
		}
		return
	}
	removed := make([]<-chan struct{}, len(heads))
	for i, e := range a.entries { // each leaves by itself
		removed[i] = handOffInBackground(e)
	}
	patience, cancel := context.WithTimeout(context.Background(), calls.GiveUpWait)
	defer cancel()
	for i, e := range a.entries {
		awaitRemoval(patience, e, removed[i])
	}
}

// awaitRemoval waits until done is closed, or ctx ends.
func awaitRemoval(ctx context.Context, e *entry, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
		e.ticket.Returned()
	}
}
