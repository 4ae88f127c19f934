package hold

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// lost returns the loss of this hold, by a cause that its lease does not share.
func (h *Hold) lost(cause holdfast.Cause) *holdfast.LostError {
	return h.named(&holdfast.LostError{Lease: h.Lease(), Cause: cause})
}

// named returns a copy of a loss that names this hold. In the set of a tree lock, or of a Downgradable, all holds have
// the name of the first: what its caller has asked for.
func (h *Hold) named(lost *holdfast.LostError) *holdfast.LostError {
	of := h
	if first := h.holds[0]; h.Queue().Kind() == holdfast.KindTree || h.Queue().Name() == first.Queue().Name() {
		of = first
	}
	e := *lost
	e.Kind, e.Name, e.Token = of.Queue().Kind(), of.Queue().Name(), of.Token()
	return &e
}

// lossOfEntry returns the loss of a hold whose entry is no longer in etcd: that of its lease, if that is lost by now,
// or else one with cause. It judges the lease by the clock: after a pause a poll may come before any timer.
func (h *Hold) lossOfEntry(cause holdfast.Cause) *holdfast.LostError {
	if lost := (*holdfast.LostError)(nil); errors.As(h.grant.Lease.Check(), &lost) {
		return h.named(lost)
	}
	return h.lost(cause)
}

// EndStale ends the hold because etcd has refused a write that compared its entry.
// It is called through internal/requests. The refusal does not say whether the lease
// is gone, too, so etcd is asked afterwards.
func (h *Hold) EndStale() {
	if h.endAndRelease(h.lossOfEntry(holdfast.CauseEntryDeleted)) {
		h.poll.checkLease(h.grant.Lease)
	}
}

// askWhyGone returns the loss of a hold whose entry is not in etcd although the
// session knows of no loss. It asks etcd whether the lease exists.
func (h *Hold) askWhyGone() *holdfast.LostError {
	l := h.grant.Lease
	ctx, cancel := context.WithTimeout(l.Context(), h.host.RetryPolicy().Attempt)
	defer cancel()
	h.poll.askLease(ctx, l)
	// Another hold may have found it out before, which has ended this request.
	return h.lossOfEntry(holdfast.CauseEntryDeleted)
}

// explain turns the error of the removal of a released entry into the loss that
// caused it, if there is one.
func (r *removal) explain(err error) error {
	h := r.hold
	if err == nil || !errors.Is(*h.cause.Load(), holdfast.ErrReleased) {
		return err // in the second case the loss is known
	}
	if errors.Is(err, holdfast.ErrOutcomeUnknown) {
		if lost := r.lossBefore(); lost != nil {
			return lost
		}
		return err
	}
	if lost := h.grant.Lease.Lost(); lost != nil {
		return h.named(lost)
	}
	if errors.Is(err, queue.ErrEntryGone) {
		return h.askWhyGone()
	}
	return err
}

// lossBefore returns the loss of the hold if etcd has ended its lease, or
// nil. That may have been before the release began. So if no reply tells
// otherwise, the hold counts as lost.
func (r *removal) lossBefore() *holdfast.LostError {
	lost := r.hold.grant.Lease.Lost()
	if lost == nil || lost.Cause != holdfast.CauseRevoked && lost.Cause != holdfast.CauseClusterChanged {
		return nil
	}
	return r.hold.named(lost)
}

// endedDuringRelease reports whether a loss that a release met came after the
// release had begun: this session gave the lease up, and etcd had not ended it
// before.
func endedDuringRelease(lost *holdfast.LostError) bool {
	return lost.Cause == holdfast.CauseExpired || lost.Cause == holdfast.CauseClosed
}

// Join returns the error of a function and the loss of its hold as one error. That is err alone if err wraps this very
// loss, as it does if the function returned the cause of its context.
func Join(err error, lost *holdfast.LostError) error {
	var found *holdfast.LostError
	if lost == nil || errors.As(err, &found) && found == lost {
		return err
	}
	return errors.Join(err, lost)
}
