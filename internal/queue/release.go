package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Release gives the hold back and waits until its entry is gone. nil: it is.
// *holdfast.LostError: it had been lost. holdfast.ErrOutcomeUnknown: ctx ended
// first, and the session goes on. With a ctx that is dead, or that ends with the
// hold, it waits for Options.CloseTimeout. Idempotent.
func (h *Hold) Release(ctx context.Context) (err error) {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if h.Live() {
		measured := h.measureRelease(ctx)
		defer func() { measured(err) }()
	}
	stopped := h.stop(holdfast.ErrReleased)
	// A context of the hold's own is done by now, so it is judged as any other.
	ctx, cancel := h.entry.q.sess.Detached(ctx)
	defer cancel()
	if stopped {
		h.leave(ctx)
	}
	if cause := *h.cause.Load(); cause != holdfast.ErrReleased {
		return cause
	}
	select {
	case <-h.gone:
	case <-ctx.Done():
		// Both may be ready.
		select {
		case <-h.gone:
		default:
			if lost := h.revoked(); lost != nil {
				return lost
			}
			h.line.callerReturned(h.entry)
			return h.unknown(context.Cause(ctx))
		}
	}
	switch {
	case h.outcome == nil:
		return nil
	case errors.Is(h.outcome, holdfast.ErrOutcomeUnknown):
		return h.unknown(h.outcome)
	case errors.Is(h.outcome, holdfast.ErrLost):
		return h.outcome
	default:
		return fmt.Errorf("release %s %s (token %d): %w", h.entry.q.kind, names.Quote(h.entry.q.name), h.entry.token, h.outcome)
	}
}

// leave takes the entry out of etcd for a caller who waits for it, and lets the
// next in line have its turn.
//
// Where nobody of this session is next, all that takes is one request, and the
// caller makes it: that saves starting a goroutine, and being woken by it. What
// that leaves open, and everything else, is for a goroutine that goes on when the
// caller has gone.
func (h *Hold) leave(ctx context.Context) {
	e := h.entry
	if h.line.alone() && e.removedAtOnce(ctx) {
		h.line.advance()
		h.left(nil)
		if !h.audited() || !e.q.sess.Go(func(context.Context) { h.over() }) {
			h.over()
		}
		return
	}
	h.leaveLater()
}

// leaveLater does the same on a goroutine of the session.
func (h *Hold) leaveLater() {
	pass := func(context.Context) {
		h.left(h.explain(h.line.handOff(h.entry)))
		h.over()
	}
	if !h.entry.q.sess.Go(pass) {
		pass(nil) // closed: the lease is lost, so this sends nothing
	}
}

// left notes what became of the entry.
func (h *Hold) left(outcome error) {
	h.outcome = outcome
	close(h.gone)
}

// over is the last that is done for a hold, once.
func (h *Hold) over() {
	defer h.joined()
	h.recordEnd()
}

func (h *Hold) unknown(err error) error {
	q := h.entry.q
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("release %s %s (token %d, lease %x, session %s): %w; its entry is removed as soon as etcd answers, or goes with the lease",
		q.kind, names.Quote(q.name), h.entry.token, int64(h.Lease()), q.sess.State(), err)
}

// revoked is the loss of the hold if etcd has let go of its lease, or nil. That
// may have been before the release began, so where no answer tells otherwise
// the hold counts as lost.
func (h *Hold) revoked() *holdfast.LostError {
	lost := h.entry.lease.Lost()
	if lost == nil || lost.Cause != holdfast.CauseRevoked && lost.Cause != holdfast.CauseClusterChanged {
		return nil
	}
	return h.named(lost)
}

// explain turns what handOff said into the loss behind it, where there is one.
func (h *Hold) explain(err error) error {
	lost := h.entry.lease.Lost()
	switch {
	case err == nil || *h.cause.Load() != holdfast.ErrReleased: // or its loss is known
		return err
	case errors.Is(err, holdfast.ErrOutcomeUnknown):
		if lost := h.revoked(); lost != nil {
			return lost
		}
		return err
	case lost != nil:
		return h.named(lost)
	case errors.Is(err, errEntryGone):
		return h.vanished(h.entry.lease.Context())
	default:
		return err
	}
}

// vanished is the loss of a hold whose entry is no longer there although the
// session knows of nothing: with its lease, or by itself? ctx ends with the
// lease.
func (h *Hold) vanished(ctx context.Context) *holdfast.LostError {
	lease := h.entry.lease
	ctx, cancel := context.WithTimeout(ctx, h.entry.q.sess.RetryPolicy().Attempt)
	defer cancel()
	resp, err := h.Client().TimeToLive(ctx, lease.ID())
	if err == nil && resp.TTL < 0 { // 0 is less than a second, on a lease that lives
		h.entry.q.sess.LeaseGone(ctx, lease, nil)
	}
	// Another hold may have found it out before, and ended this request by it.
	if lost := lease.Lost(); lost != nil {
		return h.named(lost)
	}
	return h.lost(holdfast.CauseEntryDeleted)
}

// ReleaseQuietly is Release for work that is done. It returns the loss of a hold
// that was none any more when the work ended, also where only the release has
// found that out. What happens later is not the work's failure: an outcome that
// is not known yet is logged, and a lease may expire meanwhile.
func (h *Hold) ReleaseQuietly(ctx context.Context) *holdfast.LostError {
	err := h.Release(ctx)
	if errors.Is(err, holdfast.ErrOutcomeUnknown) {
		h.entry.q.sess.Logger().Warn("holdfast: the work is done, its release is not answered yet", "error", err)
		return nil
	}
	var lost *holdfast.LostError
	if !errors.As(err, &lost) {
		return nil
	}
	if *h.cause.Load() == holdfast.ErrReleased && (lost.Cause == holdfast.CauseExpired || lost.Cause == holdfast.CauseClosed) {
		return nil // on the way
	}
	return lost
}
