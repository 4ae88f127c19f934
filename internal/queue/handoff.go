package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// handOff ends the head's turn: it removes e from etcd and makes the next ticket the head. If a ticket waits, one Txn
// removes e and puts the entry of that ticket, at the back of the queue.
//
// It runs on the lease's context, until etcd has answered or the lease is lost, so neither caller interrupts it by
// giving up. It returns what remove returns for e.
func handOff(e *entry) error {
	outcome, first := error(nil), true
	record := func(err error) { // of e; later entries are those of canceled tickets
		if first {
			outcome, first = err, false
		}
	}
	for {
		e.leaving = true
		next := e.ticket.TakeFirst()
		if next == nil {
			record(e.remove(e.of.lease.Context()))
			e.ticket.Next() // another may have joined since
			return outcome
		}
		t := next.Caller
		successor, err := replace(e, t)
		record(err)
		if t.attempt = successor; t.PassTurn() {
			return outcome
		}
		if successor == nil {
			t.Next()
			return outcome
		}
		e = successor.entries[0] // t was canceled since: hand off its entry
	}
}

// replace removes e and puts an entry for t in one Txn. It returns no attempt if t has to start from nothing. The error
// is remove's, for e.
func replace(e *entry, t *ticket) (*attempt, error) {
	lease := e.of.lease
	ctx := lease.Context()
	if e.stage < created {
		return nil, e.remove(ctx)
	}
	next := newAttempt([]*ticket{t}, lease, false)
	successor := next.entries[0]
	err := e.retry(ctx, func(ctx context.Context) error { return e.wait.passOthers(ctx, &successor.wait) })
	if err == nil {
		err = next.put(ctx, condition{after: e})
	}
	if successor.stage >= created { // so the same Txn has removed e
		e.finish()
		if err == nil {
			return next, nil
		}
		_ = successor.remove(ctx) // its token cannot be used; what stays open is the sweeper's
		return nil, nil
	}
	successor.finish()
	// The put was not carried out as far as is known. If a copy is unanswered, it
	// may have been, and may have removed e.
	maybe := next.unansweredAt != 0
	if errors.Is(err, ErrEntryGone) {
		e.finish()
		if e.removing || maybe {
			return nil, nil // removed by one of our own requests
		}
		return nil, err
	}
	if err = e.remove(ctx); maybe {
		err = ifAlreadyRemoved(err)
	}
	return nil, err
}

// ifAlreadyRemoved corrects what remove returned for an entry that an earlier unanswered Txn may have removed.
func ifAlreadyRemoved(err error) error {
	if err == nil || errors.Is(err, ErrEntryGone) {
		return nil
	}
	return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
}

// handOffInBackground runs handOff on a goroutine of the session, which Close
// joins. The channel closes when it is done.
func handOffInBackground(e *entry) <-chan struct{} {
	done := make(chan struct{})
	remove := func(context.Context) {
		defer close(done)
		_ = handOff(e)
	}
	if !e.q.host.Go(remove) {
		remove(nil) // closed: the lease is lost, so this sends nothing
	}
	return done
}

// passOthers has the entry that is to be put in place of this one remember the readers that this one
// waits for. Those that are gone by then are not ahead of it any more.
func (w *wait) passOthers(ctx context.Context, successor *wait) error {
	if err := w.untilRemovable(ctx); err != nil { // it learns the place, if that is unknown
		return err
	}
	if w.ahead == nil {
		return nil // whatever the entry waited for is judged
	}
	if q := w.e.q; w.mustLearnOthers() {
		switch resp, err := q.host.Sender().Get(ctx, q.OthersAhead(w.e.rev)); {
		case err == nil:
			w.others.Add(resp.Kvs, w.e.rev, false)
		case errors.Is(err, rpctypes.ErrCompacted):
			w.others.Add(nil, w.e.rev, true)
		default:
			return err
		}
	}
	successor.others = w.others
	successor.others.Known = false // its own are yet to be read
	return nil
}
