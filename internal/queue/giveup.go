package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
)

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
	case errors.Is(err, errEntryGone) || errors.Is(err, layout.ErrEpochMoved):
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

// closedErr returns holdfast.ErrClosed or holdfast.ErrClientClosed if the session or its
// client, not ctx, ended the call; otherwise err.
func (q *Queue) closedErr(ctx context.Context, err error) error {
	client := q.host.Client().Ctx()
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, holdfast.ErrClientClosed):
		return err
	case q.host.Context().Err() != nil:
		return holdfast.ErrClosed
	case client != nil && client.Err() != nil:
		return holdfast.ErrClientClosed
	default:
		return err
	}
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
	return " of " + names.Quote(e.q.at.Name)
}

func (e *entry) queues() string {
	if e.ticket.inSet {
		return "all queues"
	}
	return "the queue"
}
