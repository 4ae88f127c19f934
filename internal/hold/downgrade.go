package hold

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// Downgrade ends a hold of a queue.Downgradable, the writer's, and returns the reader's. Writers behind it go on
// waiting; readers behind nothing else hold. MaxHold begins again.
//
//	rev 10  A puts two entries: a writer's and a reader's. B, a writer, and C, a reader, queue behind both
//	rev 20  A downgrades: its writer's entry is deleted. A reads on, C holds beside it, and B waits for A's reader
//
// If the hold had ended before, Downgrade returns Check's result. If etcd does not answer before ctx ends, the session
// goes on removing the writer's entry, and the reader holds.
func (h *Hold) Downgrade(ctx context.Context) (*Hold, error) {
	if ctx == nil {
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if !h.Live() || !h.stop(holdfast.ErrReleased) {
		return nil, h.Check()
	}
	before := &h.holds[1].removal // Release of h waits for it
	// The reader goes on before anything is sent, so it holds without a gap, whatever becomes of the request.
	reader := h.holds[1].goOn()
	defer close(before.done) // the entry is the reader's now
	ctx, cancel := h.host.Detached(ctx)
	defer cancel()
	err := queue.RemoveNow(ctx, []*queue.Grant{h.grant}, reader.grant)
	if err == nil {
		h.removal.wasRemoved()
		return reader, nil
	}
	h.removal.inBackground()
	switch removed := h.removal.await(ctx); {
	case errors.Is(err, queue.ErrEntryGone): // refused: one of the two entries was deleted by hand
		before.outcome = reader.endLost(ctx, reader.lossOfEntry(holdfast.CauseEntryDeleted))
		return nil, before.outcome
	case removed == nil:
	case errors.Is(removed, holdfast.ErrLost): // Release of h returns that
		return nil, reader.endLost(ctx, removed)
	default:
		h.grant.Log().Warn("holdfast: downgraded to reading, but etcd has not confirmed that the writer's entry is gone; "+
			"readers wait for that", "error", removed)
	}
	return reader, nil
}

// endLost ends a hold without a caller, waits until its entry is removed or ctx ends, and returns how it has ended.
func (h *Hold) endLost(ctx context.Context, lost error) error {
	h.endAndRelease(lost)
	h.removeKept() // if a notice had ended it: no caller gets the hold, so no Release comes
	h.removal.leave(ctx)
	return h.Check()
}

// goOn returns a hold of the same entry with a life of its own. h itself has ended.
func (h *Hold) goOn() *Hold {
	// next begins with the value of the put, not with the newest that h knows. So a notice ends next, too:
	//
	//	rev 10  both entries are put
	//	rev 20  a notice is put into the reader's entry. A poll reads it: h knows the value of rev 20
	//	        next knows the value of rev 10, and its first poll reads the notice again
	next := newHold(h.grant, h.request, nil)
	next.removal.joined, next.telemetry = h.removal.joined, h.holds[0].telemetry
	next.telemetry.GoesOn()
	next.poll.add(next.holds)
	if h.request.MaxHold > 0 {
		next.limitTime()
	}
	return next
}
