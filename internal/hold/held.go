package hold

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
)

const (
	// heldAfter is how long a hold must have lasted before its entry says since when it is held.
	heldAfter = time.Second

	// heldEvery is the time between two requests of a heldWriter. A request updates at most maxHeld entries: etcd takes
	// 1.5 MiB, and each may have 136 KiB.
	heldEvery = time.Second
	maxHeld   = 8
)

// heldWriter adds to entries since when they are held. The put of an entry cannot say that, and a second write for each
// grant would make every lock slower. So only a hold that has lasted a while gets a second write: people look for long
// holds.
//
// Nothing waits for it. A refused write is not tried again: the entry goes on saying since when it is queued.
type heldWriter struct {
	busy   atomic.Bool // a request is in flight
	latest time.Time   // when a request was made; of the poller's goroutine
}

// write updates the entries of holds that need it, by at most one request a second. The poller calls it at each
// tick with the holds on one lease.
func (w *heldWriter) write(host lease.Work, holds []*Hold) {
	if time.Since(w.latest) < heldEvery || w.busy.Load() {
		return
	}
	due, ops := heldUpdates(holds)
	if len(due) == 0 {
		return
	}
	w.latest = time.Now()
	w.busy.Store(true)
	host.Go(func(ctx context.Context) { // joined by Close
		defer w.busy.Store(false)
		sendHeld(ctx, due, ops)
	})
}

// heldUpdates chooses the holds to update and makes an operation for each.
func heldUpdates(holds []*Hold) (due []*Hold, ops []clientv3.Op) {
	for _, h := range holds {
		if time.Since(h.since) < heldAfter || h.modified.Load() != 0 || h.Check() != nil {
			continue
		}
		v, ours := h.value()
		if !ours { // the value has no place for it
			continue
		}
		if len(due) == maxHeld {
			break
		}
		// The entry must stand as it was created: neither an Update, with the time in it, nor a notice is undone.
		value := h.heldValue(h.since, v.Data)
		due = append(due, h)
		ops = append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{h.unmodifiedSince(h.Created())}, []clientv3.Op{queue.PutValue(h.Key(), value)}, nil))
	}
	return due, ops
}

// sendHeld sends the operations as one Txn.
func sendHeld(ctx context.Context, holds []*Hold, ops []clientv3.Op) {
	r, err := holds[0].grant.Commit(ctx, requests.Txn{Then: ops})
	if ctx.Err() != nil || etcderr.Pending(err) {
		return // the next tick sends it again; if both are carried out, the second changes nothing
	}
	for i, h := range holds {
		mod := h.grant.Created // refused, or the entry is gone: do not try again. The next poll reads what has changed
		if err == nil && r.Inner(i).Succeeded {
			mod = r.Header.Revision
		}
		h.noteModified(mod)
	}
}
