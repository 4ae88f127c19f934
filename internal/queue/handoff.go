package queue

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
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

// replace removes e and puts an entry for t in one Txn. It returns no attempt if t must queue by itself. The error is
// what remove says of e.
func replace(e *entry, t *ticket) (*attempt, error) {
	lease := e.of.lease
	ctx := lease.Context()
	if e.stage < created {
		return nil, e.remove(ctx)
	}
	next := newAttempt([]*ticket{t}, lease)
	successor := next.entries[0]
	next.after = e
	err := next.put(ctx)
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
	if err = e.remove(ctx); maybe {
		err = ifAlreadyRemoved(err)
	}
	return nil, err
}

// ifAlreadyRemoved corrects what remove returned for an entry that an earlier unanswered Txn may have removed.
func ifAlreadyRemoved(err error) error {
	if err == nil || errors.Is(err, ErrEntryGone) || errors.Is(err, ErrRepeated) {
		return nil
	}
	return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
}
