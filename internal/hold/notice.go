package hold

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// Blocks reports whether the hold keeps its name from other callers of its session: it
// has not ended, or its entry is left to Release.
func (h *Hold) Blocks() bool {
	return h.Live() || keepsEntry(*h.cause.Load()) && !h.removal.taken.Load()
}

// readNotices reads the entries of holds whose values have changed. What is not
// answered is read after the next poll, which follows at the next look.
func (p *poller) readNotices(ctx context.Context, holds []*Hold) {
	if len(holds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.host.RetryPolicy().Attempt)
	defer cancel()
	gets := make([]clientv3.Op, len(holds))
	for i, h := range holds {
		gets[i] = clientv3.OpGet(h.Key())
	}
	resp, err := requests.Txn{Then: gets}.Once(ctx, p.host.Sender(), requests.Proof)
	if err != nil {
		p.roster.asked(holds, never)
		return
	}
	for i, h := range holds {
		if kv := resp.First(i); h.grant.Is(kv) {
			h.sawEntry(kv)
		}
	}
}

// sawEntry takes note of the entry's value, and ends the hold if that has a notice. It does so in this order: an Update
// replaces a value that is known, and the notice must stay.
func (h *Hold) sawEntry(kv *mvccpb.KeyValue) {
	defer h.sawModified(kv.ModRevision)
	v, _ := layout.DecodeValue(kv.Value) // a value of another form has no notice
	if h.Queue().Layout().Verbatim || !v.Notice.Given() {
		return
	}
	n := v.Notice
	lost := h.lost(n.Cause())
	lost.Err = n.Kick()
	if h.stop(lost) {
		h.log().Warn("holdfast: an administrator has ended a hold; its entry stays until it is released",
			"token", h.Token(), "cause", lost.Cause.String(), "by", n.By, "reason", n.Reason)
	}
	if n.Removed {
		h.force()
		time.AfterFunc(lease.ToldWithin(h.host.LockDelay()), h.removeKept)
	}
	if h.grant.Lease.Context().Err() != nil {
		h.removeKept() // endHolds may have missed it
	}
}

// takeKept returns true to the one caller that has to remove a kept entry, of a hold that has ended.
func (r *removal) takeKept() bool {
	h := r.hold
	if !keepsEntry(*h.cause.Load()) || !r.taken.CompareAndSwap(false, true) {
		return false
	}
	h.poll.roster.remove([]*Hold{h})
	return true
}

// removeKept removes a kept entry that is not left to Release any longer, on a
// goroutine of the session, with those of its Set.
func (l *life) removeKept() {
	for _, each := range l.holds {
		if each.removal.takeKept() {
			each.removal.inBackground()
		}
	}
}

// releaseKept removes a kept entry, with those of its Set, and waits for that until ctx
// ends. It returns the loss: the hold has ended before.
func (l *life) releaseKept(ctx context.Context) error {
	for _, each := range l.holds {
		switch {
		case !each.removal.takeKept():
		case each.grant.RemoveNow(ctx):
			each.removal.wasRemoved()
		default:
			each.removal.inBackground()
		}
	}
	for _, each := range l.holds {
		each.removal.leave(ctx)
	}
	return *l.cause.Load()
}

// forcing returns a channel that is closed when an administrator takes a kept entry away.
func (l *life) forcing() <-chan struct{} { return l.forced.channel(&l.mu) }

// force closes forcing, for the first of the entries of a Set.
func (l *life) force() { l.forced.give(&l.mu) }
