package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/view"
)

// MaxSet is the largest number of queues in a Set: etcd limits a Txn to 128 comparisons, and Request.Try makes three
// for each queue.
const MaxSet = 42

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
// Otherwise it queues in none, and returns ErrOccupied, with the place of a caller at the back. It waits for etcd's
// answers then, and for no other holder. It ends with ctx's error, holdfast.ErrClosed, or an error of etcd without a
// remedy; then nothing is held. With ctx's error comes the place in the queue, as a *Error. If etcd did not answer, an
// entry may still stand or appear; the session removes it once etcd answers.
//
// The loss of the lease does not end the call: it queues again, at the back, under the next lease.
func (s Set) Acquire(ctx context.Context, r Request) (_ []*Grant, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	q := s[0]
	ctx, r.telemetry = q.host.Telemetry.Acquire(ctx, q.At.Kind, q.At.Name)
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
	if heads == nil { // with r.Try alone: a goroutine of this session has come since checkFree
		return nil, ErrOwnSession
	}
	if r.OnWait != nil {
		defer heads[0].teller.end()
	}
	if err := awaitTurn(ctx, heads); err != nil {
		return nil, err
	}
	var pauses lease.Pauses
	for a := heads[0].attempt; ; a = nil { // another round, after the loss of a lease or an entry
		if a == nil {
			lease, err := q.host.Await(ctx)
			if err != nil {
				return nil, fail(ctx, heads, nil, err)
			}
			a = newAttempt(heads, lease)
		}
		err := a.put(ctx)
		if err != nil {
			err = a.putAgain(ctx, err)
		}
		if err == nil && (ctx.Err() != nil || !a.mayHold()) {
			err = a.awaitFront(ctx)
		}
		if errors.Is(err, ErrOccupied) && !r.Try { // the permit does not fit
			if a, err = a.takeTurn(ctx); err == nil {
				err = a.awaitFront(ctx)
			}
		}
		if err == nil {
			a.noteHeld()
			return a.entries, nil
		}
		if !a.canQueueAgain(ctx, err) {
			return nil, fail(ctx, heads, a, err)
		}
		if ended := pauses.Next(ctx, q.host.Env); ended != nil {
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

// join puts the call into a line of each queue. Of a Set of several queues these are lines of its own, so it is the
// head of each at once. With Request.Try it returns nil if the line of its only queue is not empty.
func (s Set) join(r Request) []*caller {
	callers := make([]*caller, len(s))
	for i, q := range s {
		c := newCaller(q, r)
		if len(s) > 1 {
			c.alone, c.inSet = true, true
		}
		if i > 0 {
			c.teller, c.request.telemetry = callers[0].teller, nil
		}
		if !q.shared.lines.join(c) {
			return nil
		}
		callers[i] = c
	}
	return callers
}

// awaitTurn waits until each caller is the head of its line. After an error the callers have left their lines.
func awaitTurn(ctx context.Context, callers []*caller) (err error) {
	c := callers[0] // in a Set every caller is the head of its own line: see join
	select {
	case <-c.turn:
	default:
		err = c.awaitTurn(ctx)
	}
	if err != nil && !c.cancel() { // its turn has come meanwhile
		<-c.turn
		giveUp(callers, c.attempt)
	}
	return err
}

// mayHold reports whether the attempt holds, by what the latest look or the put has shown: nothing is ahead of its
// entries, neither an entry nor a claim, the lease is trusted, and the look is not old.
func (a *attempt) mayHold() bool {
	isOld := a.q.host.Clock()-a.readSent > a.q.shared.lookLasts
	return a.waiting() == nil && a.lease.Check() == nil && !isOld
}

// awaitFront waits until the attempt holds. It waits for one queue after the other: what is free ahead of an entry
// stays free. It ends with the lease, because then the entries are gone, or will be, whatever happens ahead of them.
func (a *attempt) awaitFront(ctx context.Context) error {
	ctx, cancel := lease.UntilLost(ctx, a.lease)
	defer cancel()
	for _, e := range a.entries {
		if err := e.awaitNoEntryAhead(ctx); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		var err error
		switch {
		case a.waiting() != nil:
			err = a.passClaims(ctx)
		case a.mayHold():
			return nil
		default:
			// The session is suspended, or the latest look is old. Meanwhile another client may have deleted an entry.
			if err = a.lease.AwaitConnected(ctx); err == nil {
				err = a.entries[0].look(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	return retry.ContextErr(ctx)
}

// noteHeld records that the attempt holds.
func (a *attempt) noteHeld() {
	for _, e := range a.entries {
		e.Granted = Granted{e.Queue.host, e.modRevision(), a.revision, a.readSent, e.caller.request.telemetry}
		e.say(lease.Holds, lease.EntryStep{Read: a.revision})
	}
}

// waiting returns the first entry with something ahead of it, or not placed yet; nil if there is none.
func (a *attempt) waiting() *entry {
	for _, e := range a.entries {
		if !e.isFree() {
			return e
		}
	}
	return nil
}

// canQueueAgain reports whether an attempt with new entries may succeed after this attempt failed with err. If so, it
// has removed the old entries, unless they end with their lease.
func (a *attempt) canQueueAgain(ctx context.Context, err error) bool {
	switch {
	case a.lease.Lost() != nil:
		for _, e := range a.entries {
			e.finish()
		}
		return true
	case ctx.Err() != nil:
		return false
	case errors.Is(err, ErrEntryGone) || errors.Is(err, layout.ErrEpochMoved):
		a.entries[0].Log().Warn("holdfast: queueing again at the back: the waiting entry can no longer be used",
			"reason", err)
		// Otherwise the session would wait for itself:
		//
		//	rev 10  the attempt puts entry and claim
		//	rev 12  the entry is deleted by hand. The session lives, and the claim stands
		//	rev 14  the next attempt puts its entry, with the claim of rev 10 ahead: ToldWithin passes before it may hold
		a.leave(ctx, (*entry).Remove)
		return true
	default:
		return false
	}
}

// reportFailure counts a call as failed with err. A grant's owner reports how that ends.
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
func fail(ctx context.Context, heads []*caller, a *attempt, err error) error {
	c, rev, asked := heads[0], int64(0), ctx.Err() != nil || errors.Is(err, ErrOccupied)
	switch {
	case a != nil:
		e := cmp.Or(a.waiting(), a.entries[0])
		c, rev = e.caller, e.Created
		isFirst := e.stage >= placed && e.ahead == nil && (e.permit == nil || len(e.claims) > 0)
		asked = asked && !isFirst && (rev != 0 || c.request.Try)
		if c.request.Try && isFirst && !e.isFree() && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrInDelay, err)
		}
		if text := e.describe(ctx); text != "" {
			err = fmt.Errorf("%w%s", err, text)
		}
	case ctx.Err() != nil:
		err, asked = fmt.Errorf("%w; the session had no lease", err), false
	}
	// The read of the place runs beside the removal, with its patience.
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.GiveUpWait)
	defer cancel()
	place := make(chan view.Place)
	if asked {
		go func() { place <- c.readPlace(patience, rev) }() // ends with patience
	}
	giveUp(heads, a)
	if err = lease.EndedBy(ctx, c.q.host.Env, err); !asked {
		return err
	}
	return &Error{Place: <-place, Err: err}
}

// giveUp ends turns without a hold. It waits for the entries to be removed, for lease.GiveUpWait at most; the session
// goes on with it.
func giveUp(heads []*caller, a *attempt) {
	if a == nil {
		for _, c := range heads {
			c.next() // nothing was put
		}
		return
	}
	patience, cancel := context.WithTimeout(context.Background(), lease.GiveUpWait)
	defer cancel()
	a.leave(patience, (*entry).HandOff)
}

// leave calls remove for each entry, on goroutines of the session, which Close joins. It waits for them until ctx ends.
func (a *attempt) leave(ctx context.Context, remove func(*entry) error) {
	left := make(chan struct{}, len(a.entries))
	for _, e := range a.entries {
		run := func(context.Context) {
			_ = remove(e) // what stays open is the sweeper's
			left <- struct{}{}
		}
		if !a.q.host.Go(run) {
			run(nil) // closed: the lease is lost, so this sends nothing
		}
	}
	for range a.entries {
		select {
		case <-left:
		case <-ctx.Done():
			return
		}
	}
}

// checkFree returns why the put with Request.Try would fail: an entry stands.
func (s Set) checkFree(ctx context.Context) error {
	if q := s[0]; q.limit != 0 {
		return q.checkRoom(ctx)
	}
	for _, q := range s {
		if n := q.shared.lines.length(q.At.Entries); n > 0 {
			return s.occupied(q, view.Place{Ahead: min(n, view.MaxAhead), Seen: time.Now()}, ErrOwnSession)
		}
	}
	return s.checkEmpty(ctx)
}

// occupied returns err with the place in q. If there are several queues, the place names q.
func (s Set) occupied(q *Queue, place view.Place, err error) error {
	if len(s) > 1 {
		place.Name = q.At.Name
	}
	return &Error{Place: place, Err: err}
}

// checkEmpty reads whether the queues are empty. If not, it returns ErrOccupied, with the place in the first occupied
// queue.
func (s Set) checkEmpty(ctx context.Context) error {
	first := s[0]
	return first.WhileOpen(ctx, func(ctx context.Context) error {
		ask := requests.Ops{first.shared.getEpoch} // 1 and 2 for each queue
		for _, q := range s {
			ask.Add(q.placeReads(0)...)
		}
		r, err := requests.ReadAll(ctx, first.host.Sender, ask...)
		if err != nil {
			return err
		}
		for i, q := range s {
			if at := 1 + 2*i; r.Range(at+1).Count > 0 {
				return s.occupied(q, q.placeIn(r, at, 0, r.Range(0).Kvs), ErrOccupied)
			}
		}
		return nil
	})
}

// checkRoom returns ErrOccupied, with the place, unless the permits are free, or only dead claims are in the way.
func (q *Queue) checkRoom(ctx context.Context) error {
	return q.WhileOpen(ctx, func(ctx context.Context) error {
		from, end := q.At.Semaphore()
		r, err := requests.ReadAll(ctx, q.host.Sender, append([]clientv3.Op{
			clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly()), clientv3.OpGet(q.At.LimitKey()),
		}, q.placeReads(0)...)...)
		if err != nil || r.First(1) == nil {
			return err
		}
		if err := q.changeLimit(ctx, r.First(1), q.limit); err != nil {
			return err
		}
		v := standingIn(q.At, r.Range(0).Kvs...)
		if len(v.waiting) > 0 || v.live+q.weight > q.limit {
			return &Error{Place: q.placeIn(r, 2, 0, nil), Err: ErrOccupied}
		}
		return nil
	})
}
