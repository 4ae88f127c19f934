package locker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/stale"
)

// Modes of an entry, for people who look into etcd.
const (
	exclusive = "exclusive"
	shared    = "shared"
)

// named is the name of a lock with its options, as writers or as readers use it.
type named struct {
	queue *queue.Queue
	opts  Options
}

// acquire acquires the lock in a mode. With try it does not wait.
func (n named) acquire(ctx context.Context, mode string, try bool) (*queue.Hold, error) {
	start := time.Now()
	if err := n.opts.validate(); err != nil {
		return nil, n.failed(0, err)
	}
	if ctx != nil && n.queue.Err() == nil && n.heldIn(ctx) {
		return nil, n.failed(0, holdfast.ErrReentrant)
	}
	r := queue.Request{
		Owner: n.opts.Owner, Mode: mode, MinHold: n.opts.MinHold, MaxHold: n.opts.MaxHold,
		MaxIdle: n.opts.MaxIdle, Auditor: n.opts.Auditor, OnWait: n.opts.OnWait,
	}
	if mode == shared {
		r.MinHold = 0
	}
	acquire := n.queue.Acquire
	if try {
		acquire, r.OnWait = n.queue.TryAcquire, nil
	}
	hold, err := acquire(ctx, r)
	place, err := queue.WithoutPlace(err)
	if errors.Is(err, queue.ErrOccupied) {
		err = ErrLocked
	}
	if err != nil {
		failed := n.failed(time.Since(start), err)
		failed.Place = place
		return nil, failed
	}
	return hold, nil
}

// lock returns the Lock of a hold.
func (n named) lock(hold *queue.Hold) *Lock {
	return &Lock{hook: stale.NewHook(hold), hold: hold, strict: n.opts.CancelOnSuspended}
}

// heldIn reports whether ctx comes from a Lock or a ReadLock of this name that still keeps
// it taken.
func (n named) heldIn(ctx context.Context) bool {
	held := func(h *queue.Hold) bool { return h.Queue().Same(n.queue) && h.Blocks() }
	for h := range fencing.Holders(ctx) {
		if lk, ok := h.(*Lock); ok && lk != nil && held(lk.hold) {
			return true
		}
	}
	for r, _ := ctx.Value(readKey{}).(*reading); r != nil; r = r.outer {
		if held(r.lock.hold) {
			return true
		}
	}
	return false
}

func (n named) failed(waited time.Duration, err error) *AcquireError {
	e := &AcquireError{Name: n.queue.Name(), Waited: waited, Err: err}
	if host := n.queue.Host(); host != nil {
		e.Lease, e.State = host.Lease().ID(), host.State()
	}
	return e
}
