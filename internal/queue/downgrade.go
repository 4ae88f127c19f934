package queue

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/txns"
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
	r, err := h.removeBeside(ctx, reader)
	if err == nil && r.Succeeded {
		h.wasRemoved()
		return reader, nil
	}
	h.entry.removing = h.entry.q.reportUnknown("remove", err) || r.Unanswered
	h.removeInBackground()
	switch removed := h.awaitRemoved(ctx); {
	case err == nil && !r.Unanswered: // refused: one of the two entries was deleted by hand
		lost := reader.lossOfEntry(holdfast.CauseEntryDeleted)
		reader.endAndRelease(lost)
		return nil, reader.Check()
	case removed == nil:
	case errors.Is(removed, holdfast.ErrLost):
		reader.endAndRelease(removed)
		return nil, reader.Check()
	default:
		h.entry.log().Warn("holdfast: downgraded to reading, but etcd has not confirmed that the writer's entry is gone; "+
			"readers wait for that", "error", removed)
	}
	return reader, nil
}

// removeBeside removes the entry of h, by one request, if that of another hold stands.
func (h *Hold) removeBeside(ctx context.Context, other *Hold) (txns.Reply, error) {
	rctx, cancel := h.entry.requestContext(ctx, 0)
	defer cancel()
	return h.entry.commit(rctx, txns.Txn{
		If:   []clientv3.Cmp{h.IsOwner(), other.IsOwner()},
		Then: []clientv3.Op{clientv3.OpDelete(h.Key())},
	})
}

// goOn returns a hold of the same entry with a life of its own. h itself has ended. What is
// known of the entry's value is read again: a Notice in it may have been seen for h.
func (h *Hold) goOn() *Hold {
	next := newHold(h.line, h.entry)
	next.revision, next.joined, next.telemetry = h.revision, h.joined, h.holds[0].telemetry
	next.prepare([]*Hold{next})
	next.begin()
	h.markRemoved(nil) // so that nothing waits for it: the entry is next's now
	return next
}
