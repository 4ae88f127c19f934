package hold

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// Release ends the hold and waits until its entry is gone or, before MinHold has
// passed, on a lease of its own. nil: it is.
// *holdfast.LostError: the hold had been lost before. holdfast.ErrOutcomeUnknown:
// ctx ended first, and the session goes on removing the entry. With a ctx that is
// dead, or that ends with the hold, Release waits for the session's CloseTimeout.
// It is idempotent.
func (h *Hold) Release(ctx context.Context) (err error) {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if h.Live() {
		end := h.telemetry.Release(ctx)
		defer func() { end(err) }()
	}
	ended := h.stop(holdfast.ErrReleased)
	// After stop, because ctx may be derived from one of the hold's own contexts.
	ctx, cancel := h.host.Detached(ctx)
	defer cancel()
	switch {
	case keepsEntry(*h.cause.Load()):
		return h.releaseKept(ctx)
	case !ended:
	case h.grant.TakenFor() > 0:
		h.removal.stayTaken()
	case len(h.holds) > 1:
		if h.removeTogether(ctx) {
			return nil
		}
		for _, each := range h.holds {
			each.removal.inBackground()
		}
	case h.grant.RemoveNow(ctx):
		h.removal.wasRemoved()
		return nil
	default:
		h.removal.inBackground()
	}
	if cause := *h.cause.Load(); !errors.Is(cause, holdfast.ErrReleased) {
		return cause
	}
	for _, each := range h.holds {
		if failed := each.removal.await(ctx); failed != nil && err == nil {
			err = failed
		}
	}
	return err
}

// removeTogether removes the entries of a released Set by one Txn, and reports whether
// that succeeded. If not, each is to be removed by itself.
func (l *life) removeTogether(ctx context.Context) bool {
	grants := make([]*queue.Grant, len(l.holds))
	for i, each := range l.holds {
		grants[i] = each.grant
	}
	if queue.RemoveTogether(ctx, grants, nil) != nil {
		return false
	}
	for _, each := range l.holds {
		each.removal.wasRemoved()
	}
	return true
}

// askWhyGone returns the loss of a hold whose entry is not in etcd although the
// session knows of no loss. It asks etcd whether the lease exists. ctx ends with
// the lease.
func (h *Hold) askWhyGone(ctx context.Context) *holdfast.LostError {
	l := h.grant.Lease
	ctx, cancel := context.WithTimeout(ctx, h.host.RetryPolicy().Attempt)
	defer cancel()
	resp, err := h.Client().TimeToLive(ctx, l.ID())
	if err == nil && resp.TTL < 0 { // 0 is less than a second, on a lease that exists
		h.host.LeaseGone(ctx, l, nil)
	}
	// Another hold may have found it out before, which has ended this request.
	return h.lossOfEntry(holdfast.CauseEntryDeleted)
}

// ReleaseAfterWork is Release for work that has finished. It returns the loss, if
// the hold was already lost when the work ended, even if only the release reveals
// it. What happens after that is not a failure of the work: an unknown outcome is
// logged, and a lease that expires during the release is not reported.
func (h *Hold) ReleaseAfterWork(ctx context.Context) *holdfast.LostError {
	err := h.Release(ctx)
	if errors.Is(err, holdfast.ErrOutcomeUnknown) {
		h.host.Logger().Warn("holdfast: work finished, but etcd has not confirmed the release", "error", err)
		return nil
	}
	var lost *holdfast.LostError
	if !errors.As(err, &lost) {
		return nil
	}
	if errors.Is(*h.cause.Load(), holdfast.ErrReleased) && endedDuringRelease(lost) {
		return nil
	}
	return lost
}

// endedDuringRelease reports whether a loss that a release met came after the
// release had begun: this session gave the lease up, and etcd had not ended it
// before.
func endedDuringRelease(lost *holdfast.LostError) bool {
	return lost.Cause == holdfast.CauseExpired || lost.Cause == holdfast.CauseClosed
}
