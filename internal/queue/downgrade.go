package queue

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
)

// Downgradable returns the queue as one acquisition uses it that is to hold alone first, and
// then beside readers: as a writer and as a reader. The entries of both stand from the
// beginning, so no writer can come in between.
func (q *Queue) Downgradable() Set { return Set{q, q.Readers()} }

// Downgrade ends a hold of a Downgradable, the writer's, and returns the reader's, which goes
// on. Writers behind it go on waiting; readers that only waited for it hold. MaxHold and
// MaxIdle begin again.
//
// If the hold had ended before, Downgrade returns Check's result. If etcd does not answer
// before ctx ends, the session goes on removing the writer's entry, and the reader holds.
func (h *Hold) Downgrade(ctx context.Context) (*Hold, error) {
	if ctx == nil {
		return nil, &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if !h.Live() || !h.stop(holdfast.ErrReleased) {
		return nil, h.Check()
	}
	reader := h.holds[1].goOn()
	ctx, cancel := h.entry.q.host.Detached(ctx)
	defer cancel()
	if h.removeNow(ctx) {
		return reader, nil
	}
	h.removeInBackground()
	switch err := h.awaitRemoved(ctx); {
	case err == nil:
	case errors.Is(err, holdfast.ErrLost):
		reader.endAndRelease(err)
		return nil, err
	default:
		h.entry.log().Warn("holdfast: downgraded to reading, but etcd has not confirmed that the writer's entry is gone; "+
			"readers wait for that", "error", err)
	}
	return reader, nil
}

// goOn returns a hold of the same entry with a life of its own. h itself is over.
func (h *Hold) goOn() *Hold {
	next := newHold(h.line, h.entry)
	next.revision, next.joined, next.telemetry = h.revision, h.joined, h.holds[0].telemetry
	next.modified.Store(h.modified.Load())
	next.prepare([]*Hold{next})
	next.begin()
	h.markRemoved(nil) // it was not: the entry is next's now
	return next
}
