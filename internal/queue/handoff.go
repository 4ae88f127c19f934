package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

// handOff ends the head's turn. Its entry leaves etcd, in one Txn with the entry
// of the next in line where there is one, and the next becomes the head.
//
// It works on the lease's context: until it is answered, or the lease is lost
// and takes its entries along. The result is remove's, for e.
func (ln *line) handOff(e *entry) error {
	outcome, own := error(nil), true
	note := func(err error) {
		if own {
			outcome, own = err, false
		}
	}
	for {
		next := ln.first()
		if next == nil {
			note(e.remove(e.lease.Context()))
			ln.advance() // one may have joined meanwhile
			return outcome
		}
		successor, err := ln.replace(e, next)
		note(err)
		if ln.promote(next, turn{successor}) {
			return outcome
		}
		if successor == nil {
			ln.advance()
			return outcome
		}
		e = successor // next has left meanwhile: hand on in its stead
	}
}

// replace puts the entry of the next in line and removes e in the same Txn. It
// returns no entry where the next has to start from nothing. The error is
// remove's, for e.
func (ln *line) replace(e *entry, next *ticket) (*entry, error) {
	ctx := e.lease.Context()
	if e.stage < created {
		return nil, e.remove(ctx)
	}
	successor := ln.enter(next, e.lease)
	err := successor.put(ctx, ctx, condition{after: e})
	if successor.stage >= created {
		e.finish() // in the same Txn
		if err == nil {
			return successor, nil
		}
		_ = successor.remove(ctx) // it may not stay; what is left open is the sweeper's
		return nil, nil
	}
	successor.finish()
	// A copy of the Txn, which removes e as well, may have been carried out.
	maybe := successor.openAt != 0
	if errors.Is(err, errEntryGone) {
		e.finish()
		if e.removing || maybe {
			return nil, nil
		}
		return nil, err
	}
	if err = e.remove(ctx); maybe {
		err = unanswered(err)
	}
	return nil, err
}

// unanswered corrects what remove said of an entry that an unanswered Txn may
// have removed before.
func unanswered(err error) error {
	if err == nil || errors.Is(err, errEntryGone) {
		return nil
	}
	return fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
}

// handOffLater is handOff on a goroutine of the session. The channel closes when
// it is done.
func (ln *line) handOffLater(e *entry) <-chan struct{} {
	done := make(chan struct{})
	handOff := func(context.Context) {
		defer close(done)
		_ = ln.handOff(e)
	}
	if !ln.q.sess.Go(handOff) {
		handOff(nil) // closed: the lease is lost, so this sends nothing
	}
	return done
}
