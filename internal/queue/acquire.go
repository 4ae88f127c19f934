package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/view"
)

// MaxSet is the largest number of queues in a Set: etcd limits a Txn to 128 comparisons, and Request.Try makes two for
// each queue.
const MaxSet = 63

// Set is several queues in which one attempt has an entry each. One Txn puts all entries, so they have one create
// revision, and two attempts that meet in several queues are in the same order in all of them. So they never wait for
// each other, however they name their queues. The attempt holds when each of its entries is at the front of its queue.
//
// Each queue has a hold, in the order of the queues. The holds end together: a loss or a release of one ends all, with
// the same cause.
type Set []*Queue

// Downgradable returns the queue twice: as a writer and as a reader use it. The caller holds alone first, and then
// gives up the writer's entry. The reader's stands from the beginning, so no writer can come in between.
func (q *Queue) Downgradable() Set { return Set{q, q.Readers()} }

// Acquire queues, waits, and returns a grant for each queue. With Request.Try it does so only if all are empty.
// Otherwise it queues in none, and returns ErrOccupied, with the place that the caller would have had, or
// ErrUnconfirmed. It waits for etcd's answers then, and for no other holder. It ends with ctx's error,
// holdfast.ErrClosed, or what etcd said that no retry can mend; then nothing is held.
// With ctx's error comes the place in the queue, as a *ahead.Error. If etcd did not answer, an entry may still stand
// or appear, which the session removes once etcd answers.
//
// A lease that is lost on the way costs the place in the queue and does not end the call: it queues again, at the back,
// under the next lease.
func (s Set) Acquire(ctx context.Context, r Request) (_ []*Grant, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	q := s[0]
	ctx, r.telemetry = q.host.Telemetry().Acquire(ctx, q.At.Kind, q.At.Name)
	defer func() {
		if err != nil {
			r.reportFailure(ctx, err)
		}
	}()
	if r.Try {
		if err := s.checkFree(ctx); err != nil {
			return nil, err
		}
	}
	heads := s.join(r)
	if heads == nil { // with r.Try alone
		return nil, ErrOccupied // by a goroutine of this session, since checkFree
	}
	if r.OnWait != nil {
		defer heads[0].teller.End()
	}
	if err := awaitTurn(ctx, heads); err != nil {
		return nil, err
	}
	var pauses lease.Pauses
	for a := heads[0].attempt; ; a = nil { // a round that loses its lease or an entry is followed by another one
		if a == nil {
			lease, err := q.host.Await(ctx)
			if err != nil {
				return nil, fail(ctx, heads, nil, err)
			}
			a = newAttempt(heads, lease)
		}
		err := a.put(ctx)
		if err == nil && (ctx.Err() != nil || !a.mayHold()) {
			err = a.awaitFront(ctx)
		}
		if errors.Is(err, ErrOccupied) && !r.Try { // a permit that does not fit
			if a, err = a.takeTurn(ctx); err == nil {
				err = a.awaitFront(ctx)
			}
		}
		if err == nil {
			return newGrants(a), nil
		}
		if !a.canQueueAgain(ctx, err) {
			return nil, fail(ctx, heads, a, err)
		}
		if ended := pauses.Next(ctx, q.host, err); ended != nil {
			return nil, fail(ctx, heads, nil, fmt.Errorf("%w; last error: %w", ended, err))
		}
	}
}

// usable returns what is wrong with the queues or with ctx, or ctx's error.
func (s Set) usable(ctx context.Context) error {
	if len(s) == 0 {
		return errNoQueue
	}
	for _, q := range s {
		switch {
		case q == nil:
			return errNoQueue
		case q.err != nil:
			return q.err
		}
	}
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	return retry.ContextErr(ctx)
}

// join gives the caller a ticket in each queue. Each ticket of a Set of several queues has a line of its own, so it is
// the head at once. A call that tries gets no tickets, if the line of its only queue is not empty.
func (s Set) join(r Request) []*ticket {
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
		if !q.shared.lines.Join(&t.Ticket, q.At.Entries, r.Try) {
			return nil
		}
		tickets[i] = t
	}
	return tickets
}

// awaitTurn waits until each ticket is the head of its line. After an error the tickets have
// left their lines.
func awaitTurn(ctx context.Context, tickets []*ticket) (err error) {
	t := tickets[0] // the only one that may have to wait: see join
	select {
	case <-t.Turn():
		return nil
	default:
		err = t.awaitTurn(ctx)
	}
	if err != nil && !t.Cancel() { // its turn has come meanwhile
		<-t.Turn()
		giveUp(tickets, t.attempt)
	}
	return err
}

// reportFailure reports to telemetry that a call failed with err. A grant's owner reports how that ends.
func (r Request) reportFailure(ctx context.Context, err error) {
	switch {
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

// fail ends the turns of a call that failed with err, and returns the error for its caller.
func fail(ctx context.Context, heads []*ticket, a *attempt, err error) error {
	t, rev, asked := heads[0], int64(0), ctx.Err() != nil || errors.Is(err, ErrOccupied)
	switch {
	case a != nil:
		e := cmp.Or(a.waiting(), a.entries[0])
		t, rev = e.ticket, e.rev
		isFirst := e.stage >= placed && e.wait.ahead == nil && (e.wait.permit == nil || len(e.wait.claims) > 0)
		asked = asked && !isFirst && (rev != 0 || t.request.Try)
		if t.request.Try && isFirst && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrInDelay, err)
		}
		if text := e.wait.describe(ctx); text != "" {
			err = fmt.Errorf("%w%s", err, text)
		}
	case ctx.Err() != nil:
		err, asked = fmt.Errorf("%w; the session had no lease", err), false
	}
	// The read of the place runs beside the removal, with its patience.
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.GiveUpWait)
	defer cancel()
	place := make(chan view.Place, 1)
	if asked {
		go func() { place <- t.readPlace(patience, rev) }() // ends with patience
	}
	giveUp(heads, a)
	if err = lease.EndedBy(ctx, t.q.host, err); !asked {
		return err
	}
	return &ahead.Error{Place: <-place, Err: err}
}

// giveUp ends turns without a hold. It waits for the entries to be removed, for
// lease.GiveUpWait at most; the session goes on with it.
func giveUp(heads []*ticket, a *attempt) {
	if a == nil {
		for _, t := range heads {
			t.Next() // nothing was put
		}
		return
	}
	removed := make([]<-chan struct{}, len(heads))
	for i, e := range a.entries { // each leaves by itself
		removed[i] = inBackground(e.q.host, func() { _ = handOff(e) })
	}
	patience, cancel := context.WithTimeout(context.Background(), lease.GiveUpWait)
	defer cancel()
	for i, e := range a.entries {
		select {
		case <-removed[i]:
		case <-patience.Done():
			e.ticket.Returned()
		}
	}
}

// inBackground runs f on a goroutine of the session, which Close joins. The channel closes when f has returned.
func inBackground(host lease.Host, f func()) <-chan struct{} {
	done := make(chan struct{})
	run := func(context.Context) {
		defer close(done)
		f()
	}
	if !host.Go(run) {
		run(nil) // closed: the lease is lost, so f sends nothing
	}
	return done
}
