package queue

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Requeue ends the hold and waits in line again, at the back. Leaving and
// queueing are one Txn: a ticket that is taken before the hold ends is one
// that pass finds, and puts the next entry for. Goroutines of this session
// that were waiting before have their turn first.
//
// If the hold had ended before, Requeue returns how, and queues nothing.
// Otherwise the hold has ended, released, and all else is as with Acquire.
func (h *Hold) Requeue(ctx context.Context, r Request) (*Hold, error) {
	q := h.entry.q
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	if !h.Live() {
		return nil, h.Check()
	}
	return q.measured(ctx, r, h.requeue)
}

func (h *Hold) requeue(ctx context.Context, r Request) (*Hold, error) {
	q := h.entry.q
	t := q.ticket(r.Value)
	ln := q.local.join(t, false)
	if !h.end(holdfast.ErrReleased) {
		q.stepOut(ln, t)
		return nil, h.Check() // it had ended between the two
	}
	return q.inLine(ctx, ln, t, r)
}

// Abandon makes the hold lost, unless it has ended already, and returns its
// Check. The entry is being removed; Abandon waits a moment for that, as
// giveUp does.
func (h *Hold) Abandon(cause holdfast.Cause) error {
	h.end(h.lost(cause))
	patience := time.NewTimer(giveUpWait)
	defer patience.Stop()
	select {
	case <-h.gone:
	case <-patience.C:
		h.line.callerReturned(h.entry)
	}
	return h.Check()
}
