package hold

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// lost returns the loss of this hold by a cause of its own. Its lease lives.
func (h *Hold) lost(cause holdfast.Cause) *holdfast.LostError {
	return h.named(&holdfast.LostError{Lease: h.Lease(), Cause: cause})
}

// named returns a copy of a loss, with the name of this hold. In the set of a tree lock, or of a Downgradable, all
// holds have the name of the first: its caller has asked for that name.
func (h *Hold) named(lost *holdfast.LostError) *holdfast.LostError {
	of := h
	if first := h.holds[0]; h.Queue().Kind() == holdfast.KindTree || h.Queue().Name() == first.Queue().Name() {
		of = first
	}
	e := *lost
	e.Kind, e.Name, e.Token = of.Queue().Kind(), of.Queue().Name(), of.Token()
	return &e
}

// lossOfEntry returns the loss of a hold whose entry is no longer in etcd: its lease's loss, if the lease is lost by
// now, or else a loss with cause.
func (h *Hold) lossOfEntry(cause holdfast.Cause) *holdfast.LostError {
	// The clock judges the lease: after a pause a poll may come before any timer.
	if lost := (*holdfast.LostError)(nil); errors.As(h.grant.Lease.Check(), &lost) {
		return h.named(lost)
	}
	return h.lost(cause)
}

// EndStale ends the hold because etcd has refused a fenced write. internal/requests calls it.
func (h *Hold) EndStale() {
	if h.endAndRelease(h.lossOfEntry(holdfast.CauseEntryDeleted)) {
		h.poll.checkLease(h.grant.Lease) // the refusal does not say whether the lease is gone, too
	}
}

// askWhyGone returns the loss of a hold whose entry is not in etcd although the session knows of no loss. It asks etcd
// whether the lease exists.
func (h *Hold) askWhyGone() *holdfast.LostError {
	l := h.grant.Lease
	ctx, cancel := context.WithTimeout(l.Context(), requests.Patience)
	defer cancel()
	h.poll.askLease(ctx, l)
	// Another hold may have found it out before: the loss of the lease has ended this request.
	return h.lossOfEntry(holdfast.CauseEntryDeleted)
}

// explain turns the error of the removal of a released entry into the loss behind it, if there is any.
func (r *removal) explain(err error) error {
	h := r.hold
	if err == nil || !errors.Is(*h.cause.Load(), holdfast.ErrReleased) {
		return err // unless the hold was released, its loss is known
	}
	lost, unknown := h.grant.Lease.Lost(), errors.Is(err, holdfast.ErrOutcomeUnknown)
	switch {
	case lost != nil && (!unknown || lost.Cause == holdfast.CauseRevoked || lost.Cause == holdfast.CauseClusterChanged):
		// Etcd may have ended the lease before the release began. So if no reply tells otherwise, the hold counts as lost:
		//
		//	0 s  the lease is revoked. The session is cut off, and not told
		//	2 s  the lock delay is over: the next one holds, beside A's work
		//	3 s  A releases. Before a reply to that, the session hears of the revocation
		return h.named(lost)
	case errors.Is(err, queue.ErrEntryGone):
		return h.askWhyGone()
	default:
		return err
	}
}

// Join returns the error of a function and the loss of its hold as one error. It is err alone if err wraps this very
// loss, as it does if the function returned the cause of its context.
func Join(err error, lost *holdfast.LostError) error {
	var found *holdfast.LostError
	if lost == nil || errors.As(err, &found) && found == lost {
		return err
	}
	return errors.Join(err, lost)
}

// Blocks reports whether the hold keeps its name from other callers of its session: it has not ended, or its entry is
// left to Release.
func (h *Hold) Blocks() bool {
	return h.Live() || keepsEntry(*h.cause.Load()) && !h.taken.Load()
}

// readNotices reads the entries of holds whose values have changed.
func (p *poller) readNotices(ctx context.Context, holds []*Hold) {
	if len(holds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requests.Patience)
	defer cancel()
	gets := make([]clientv3.Op, len(holds))
	for i, h := range holds {
		gets[i] = clientv3.OpGet(h.Key())
	}
	resp, err := requests.Txn{Then: gets}.Once(ctx, p.host.Sender, requests.Proof)
	if err != nil {
		p.roster.notePolled(holds, never) // the next tick polls them again
		return
	}
	for i, h := range holds {
		if kv := resp.First(i); h.grant.Is(kv) {
			h.noteEntry(kv)
		}
	}
}

// noteEntry records the entry's value, and ends the hold if the value has a notice.
func (h *Hold) noteEntry(kv *mvccpb.KeyValue) {
	defer h.noteModified(kv.ModRevision) // last: an Update replaces a value that is known, and the notice must stay
	v, _ := layout.DecodeValue(kv.Value) // a value of another form has no notice
	if h.Queue().Layout().Verbatim || !v.Notice.Given() {
		return
	}
	n := v.Notice
	lost := h.lost(n.Cause())
	lost.Err = n.Kick()
	// The contexts end, and the entry stays, so the next one holds when the work has ended in order:
	//
	//	rev 10  A puts its entry, and holds
	//	rev 20  an administrator puts the notice into it, and the session key as it is: the bell
	//	        A's session polls at once: mod(entry) is 20. It reads the entry, and A's contexts end
	//	rev 25  A's work has returned, and Release deletes the entry: B holds
	if h.stop(lost) {
		h.grant.Log().Warn("holdfast: an administrator has ended a hold; its entry stays until it is released",
			"token", h.Token(), "cause", lost.Cause.String(), "by", n.By, "reason", n.Reason)
	}
	if n.Removed { // no Release may ever come; by then the holder must have been told
		h.forced.give(&h.mu)
		time.AfterFunc(lease.ToldWithin(h.host.LockDelay), h.removeKept)
	}
	if h.grant.Lease.Context().Err() != nil {
		h.removeKept() // endHolds may have missed it
	}
}

// removeKept removes a kept entry, with those of its Set, once, on goroutines of the session. Release calls it, and
// whatever cannot wait for a Release.
func (l *life) removeKept() {
	if keepsEntry(*l.cause.Load()) && l.taken.CompareAndSwap(false, true) {
		l.poll.roster.remove(l.holds)
		l.removeEach()
	}
}
