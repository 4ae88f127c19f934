package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

// fail ends the turns of a call that failed with err, and returns the error for its
// caller.
func fail(ctx context.Context, turns []turn, a *attempt, err error) error {
	t, first := turns[0].ticket, false
	if a != nil {
		e := cmp.Or(a.waiting(), a.entries[0])
		if text := e.wait.describe(ctx); text != "" {
			err = fmt.Errorf("%w%s", err, text)
		}
		t, first = e.ticket, e.stage == placed && e.wait.ahead == nil
	} else if ctx.Err() != nil {
		err = fmt.Errorf("%w; the session had no lease", err)
	}
	giveUp(turns, a)
	if err = t.q.shared.closedErr(ctx, err); first || ctx.Err() == nil && !errors.Is(err, ErrOccupied) {
		return err
	}
	return &PlacedError{stale(t.knownAhead()), err}
}

// giveUp ends turns without a hold. It waits for the entries to be removed, for
// giveUpWait at most; the session goes on with it.
func giveUp(turns []turn, a *attempt) {
	if a == nil {
		for _, t := range turns {
			t.line.next() // nothing was put
		}
		return
	}
	removed := make([]<-chan struct{}, len(turns))
	for i, e := range a.entries { // each leaves by itself
		if e.stage < created {
			_ = turns[i].line.handOff(e) // sends nothing: the sweeper takes over
		} else {
			removed[i] = turns[i].line.handOffInBackground(e)
		}
	}
	patience, cancel := context.WithTimeout(context.Background(), giveUpWait)
	defer cancel()
	for i, e := range a.entries {
		if removed[i] != nil {
			turns[i].line.awaitRemoval(patience, e, removed[i])
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

// closedErr returns holdfast.ErrClosed or holdfast.ErrClientClosed if the session or its
// client, not ctx, ended the call; otherwise err.
func (s *shared) closedErr(ctx context.Context, err error) error {
	client := s.host.Client().Ctx()
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, holdfast.ErrClientClosed):
		return err
	case s.host.Context().Err() != nil:
		return holdfast.ErrClosed
	case client != nil && client.Err() != nil:
		return holdfast.ErrClientClosed
	default:
		return err
	}
}
