package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
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
		span := h.telemetry.Release(ctx)
		defer func() { span(releaseOutcome(err)) }()
	}
	ended := h.stop(holdfast.ErrReleased)
	// After stop, because ctx may be derived from one of the hold's own contexts.
	ctx, cancel := h.entry.q.host.Detached(ctx)
	defer cancel()
	switch {
	case keepsEntry(*h.cause.Load()):
		return h.releaseKept(ctx)
	case !ended:
	case h.entry.takenFor() > 0:
		h.stayTaken()
	case len(h.holds) > 1:
		if h.removeTogether(ctx) {
			return nil
		}
		for _, each := range h.holds {
			each.removeInBackground()
		}
	case h.removeNow(ctx):
		return nil
	default:
		h.removeInBackground()
	}
	if cause := *h.cause.Load(); !errors.Is(cause, holdfast.ErrReleased) {
		return cause
	}
	for _, each := range h.holds {
		if failed := each.awaitRemoved(ctx); failed != nil && err == nil {
			err = failed
		}
	}
	return err
}

// awaitRemoved waits until the entry of a released hold is removed, or ctx ends, and
// returns what Release does.
func (h *Hold) awaitRemoved(ctx context.Context) error {
	select {
	case <-h.removed:
		return h.removalError()
	case <-ctx.Done():
	}
	select {
	case <-h.removed: // both were ready
		return h.removalError()
	default:
	}
	if lost := h.lossBeforeRelease(); lost != nil {
		return lost
	}
	h.line.callerReturned(h.entry)
	return h.outcomeUnknown(context.Cause(ctx))
}

// removeNow removes the entry with one request, on the goroutine of the caller who
// waits for it, and reports whether that succeeded. It does nothing if another
// goroutine waits in the line: then the entry is to be handed off, which must not
// end with this caller's patience.
//
// This is the usual release. removeInBackground could do it as well, but starting a
// goroutine and being woken by it costs a free lock some ten microseconds.
func (h *Hold) removeNow(ctx context.Context) bool {
	if !h.line.headAlone() {
		return false
	}
	rctx, cancel := h.entry.requestContext(ctx, 0)
	defer cancel()
	if h.entry.tryRemove(rctx) != nil {
		return false
	}
	h.wasRemoved()
	return true
}

// wasRemoved ends the turn of a hold whose entry its releasing caller has removed.
func (h *Hold) wasRemoved() {
	h.entry.finish()
	h.line.next()
	h.markRemoved(nil)
	// An auditor may be slow, and the caller does not wait for it.
	if !h.audited() || !h.entry.q.host.Go(func(context.Context) { h.finalize() }) { // joined by Close
		h.finalize()
	}
}

// removeInBackground removes the entry, or hands it off to the next goroutine in
// the line, on a goroutine of the session, which Close joins.
func (h *Hold) removeInBackground() {
	remove := func(context.Context) {
		h.markRemoved(h.explain(h.line.handOff(h.entry)))
		h.finalize()
	}
	if !h.entry.q.host.Go(remove) {
		remove(nil) // closed: the lease is lost, so this sends nothing
	}
}

// markRemoved records what became of the entry, and wakes Release.
func (h *Hold) markRemoved(outcome error) {
	h.outcome = outcome
	close(h.removed)
}

// finalize is the last thing done for a hold.
func (h *Hold) finalize() {
	defer h.joined()
	h.recordEnd()
}

// removalError is what Release returns for the outcome of the removal.
func (h *Hold) removalError() error {
	switch {
	case h.outcome == nil:
		return nil
	case errors.Is(h.outcome, holdfast.ErrOutcomeUnknown):
		return h.outcomeUnknown(h.outcome)
	case errors.Is(h.outcome, holdfast.ErrLost):
		return h.outcome
	default:
		q := h.entry.q
		return fmt.Errorf("release %s (%skey %s): %w", q, h.tokenText(), names.Quote(h.Key()), h.outcome)
	}
}

// tokenText names the token for the text of an error. A reader has none.
func (h *Hold) tokenText() string {
	if h.entry.token == 0 {
		return ""
	}
	return fmt.Sprintf("token %d, ", h.entry.token)
}

func (h *Hold) outcomeUnknown(err error) error {
	q := h.entry.q
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	next := "the session removes the entry once etcd answers, or it expires with the lease"
	if h.entry.takenFor() > 0 {
		next = "the session keeps the name taken until MinHold has passed, as long as its lease lives"
	}
	return fmt.Errorf("release %s (%slease %x, session %s): %w; %s",
		q, h.tokenText(), int64(h.Lease()), q.host.State(), err, next)
}

// explain turns the error of the removal of a released entry into the loss that
// caused it, if there is one.
func (h *Hold) explain(err error) error {
	if err == nil || !errors.Is(*h.cause.Load(), holdfast.ErrReleased) {
		return err // in the second case the loss is known
	}
	if errors.Is(err, holdfast.ErrOutcomeUnknown) {
		if lost := h.lossBeforeRelease(); lost != nil {
			return lost
		}
		return err
	}
	if lost := h.entry.lease.Lost(); lost != nil {
		return h.named(lost)
	}
	if errors.Is(err, errEntryGone) {
		return h.askWhyGone(h.entry.lease.Context())
	}
	return err
}

// lossBeforeRelease returns the loss of the hold if etcd has ended its lease, or
// nil. That may have been before the release began. So if no reply tells
// otherwise, the hold counts as lost.
func (h *Hold) lossBeforeRelease() *holdfast.LostError {
	lost := h.entry.lease.Lost()
	if lost == nil || lost.Cause != holdfast.CauseRevoked && lost.Cause != holdfast.CauseClusterChanged {
		return nil
	}
	return h.named(lost)
}

// askWhyGone returns the loss of a hold whose entry is not in etcd although the
// session knows of no loss. It asks etcd whether the lease exists. ctx ends with
// the lease.
func (h *Hold) askWhyGone(ctx context.Context) *holdfast.LostError {
	lease := h.entry.lease
	ctx, cancel := context.WithTimeout(ctx, h.entry.q.host.RetryPolicy().Attempt)
	defer cancel()
	resp, err := h.Client().TimeToLive(ctx, lease.ID())
	if err == nil && resp.TTL < 0 { // 0 is less than a second, on a lease that exists
		h.entry.q.host.LeaseGone(ctx, lease, nil)
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
		h.entry.q.host.Logger().Warn("holdfast: work finished, but etcd has not confirmed the release", "error", err)
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
