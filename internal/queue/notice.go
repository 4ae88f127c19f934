package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// toldWithin is Value.ToldWithin of a session with that lock delay: the first entry of
// a queue may have to wait for the delay before it holds, and two seconds later its
// holder has been told.
func toldWithin(lockDelay time.Duration) time.Duration { return lockDelay + 2*time.Second }

// lookLasts is for how long an attempt may begin to hold by a look at its entries, from the time at which the request
// for that was sent. Right after the look an administrator may have removed an entry, which is then gone within
// toldWithin. By then the hold must have been polled, which happens before it is one and a half intervals old.
func (q *Queue) lookLasts() time.Duration {
	return toldWithin(q.shared.lockDelay) - 3*q.shared.poll.interval()/2
}

// kept says what becomes of an entry that outlives its hold.
type kept struct {
	taken   atomic.Bool // it is being removed
	bounded atomic.Bool // it will be, without Release
}

// keepsEntry reports whether a hold that ended with that cause leaves its entry to
// Release.
func keepsEntry(cause error) bool {
	var lost *holdfast.LostError
	return errors.As(cause, &lost) && (lost.Cause == holdfast.CauseKicked || lost.Cause == holdfast.CauseRemoved)
}

// Blocks reports whether the hold keeps its name from other callers of its session: it
// has not ended, or its entry is left to Release.
func (h *Hold) Blocks() bool {
	return h.Live() || keepsEntry(*h.cause.Load()) && !h.kept.taken.Load()
}

// unchanged is true in a Txn as long as the entry stands with the value that is known.
func (h *Hold) unchanged() clientv3.Cmp {
	if !h.entry.q.at.TakesNotices() {
		return h.IsOwner()
	}
	return clientv3.Compare(clientv3.ModRevision(h.Key()), "=", max(h.modified.Load(), h.entry.rev))
}

// unknown reports whether the value that was put at mod is yet to be read.
func (h *Hold) unknown(mod int64) bool {
	return h.entry.q.at.TakesNotices() && mod > max(h.modified.Load(), h.entry.rev)
}

// readNotices reads the entries of holds whose values have changed. What is not
// answered is read after the next poll.
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
	resp, err := txns.Txn{Then: gets}.Once(ctx, p.host.Sender(), attempt.Read)
	if err != nil {
		return
	}
	for i, h := range holds {
		if kv := resp.First(i); isEntry(kv, h.entry.rev) {
			h.sawEntry(kv)
		}
	}
}

// sawEntry takes note of the entry's value, and ends the hold if that has a notice.
func (h *Hold) sawEntry(kv *mvccpb.KeyValue) {
	h.sawModified(kv.ModRevision)
	v, ok := layout.DecodeValue(kv.Value)
	if !ok || !h.entry.q.at.TakesNotices() || !v.Notice.Given() {
		return
	}
	n := v.Notice
	lost := h.lost(n.Cause())
	lost.Err = n.Kick()
	if h.stop(lost) {
		h.entry.log().Warn("holdfast: an administrator has ended a hold; its entry stays until it is released",
			"token", h.entry.token, "cause", lost.Cause.String(), "by", n.By, "reason", n.Reason)
	}
	if n.Removed && keepsEntry(*h.cause.Load()) && h.kept.bounded.CompareAndSwap(false, true) {
		time.AfterFunc(toldWithin(h.line.shared.lockDelay), h.removeKept)
	}
	if h.entry.lease.Context().Err() != nil {
		h.removeKept() // endHolds may have missed it
	}
}

// takeKept returns true to the one caller that has to remove a kept entry.
func (h *Hold) takeKept() bool {
	cause := h.cause.Load()
	if cause == nil || !keepsEntry(*cause) || !h.kept.taken.CompareAndSwap(false, true) {
		return false
	}
	h.line.shared.poll.remove([]*Hold{h})
	return true
}

// removeKept removes a kept entry that is not left to Release any longer, on a
// goroutine of the session, with those of its Set.
func (h *Hold) removeKept() {
	for _, each := range h.holds {
		if each.takeKept() {
			each.removeInBackground()
		}
	}
}

// releaseKept removes a kept entry, with those of its Set, and waits for that until ctx
// ends. It returns the loss: the hold has ended before.
func (h *Hold) releaseKept(ctx context.Context) error {
	for _, each := range h.holds {
		if each.takeKept() && !each.removeNow(ctx) {
			each.removeInBackground()
		}
	}
	for _, each := range h.holds {
		each.line.awaitRemoval(ctx, each.entry, each.removed)
	}
	return *h.cause.Load()
}
