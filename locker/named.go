package locker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/stale"
)

// named is what an acquisition acquires: the name of a lock as writers or as readers use it, or several, with options.
type named struct {
	queues queue.Set // the first one's name is that of the lock; none in a Mutex{}
	text   string    // for errors; empty: the name
	opts   Options
}

// at returns the name of one lock.
func at(q *queue.Queue, o Options) named { return named{queues: queue.Set{q}, opts: o} }

// first returns the first queue, or nil.
func (n named) first() *queue.Queue {
	if len(n.queues) == 0 {
		return nil
	}
	return n.queues[0]
}

// acquire acquires what is named: one hold for each queue. With try it does not wait.
func (n named) acquire(ctx context.Context, try bool) ([]*queue.Hold, error) {
	start := time.Now()
	if err := n.opts.validate(); err != nil {
		return nil, n.failed(0, err)
	}
	if ctx != nil && n.heldIn(ctx) {
		return nil, n.failed(0, holdfast.ErrReentrant)
	}
	r := queue.Request{
		Owner: n.opts.Owner, MinHold: n.opts.MinHold, MaxHold: n.opts.MaxHold,
		MaxIdle: n.opts.MaxIdle, Auditor: n.opts.Auditor, OnWait: n.opts.OnWait,
	}
	acquire := n.queues.Acquire
	if try {
		acquire, r.OnWait = n.queues.TryAcquire, nil
	}
	holds, err := acquire(ctx, r)
	place, err := queue.WithoutPlace(err)
	if errors.Is(err, queue.ErrOccupied) {
		err = ErrLocked
	}
	if err != nil {
		failed := n.failed(time.Since(start), err)
		failed.Place = place
		return nil, failed
	}
	return holds, nil
}

// lock returns the Lock of a hold.
func (n named) lock(hold *queue.Hold) *Lock {
	return &Lock{hook: stale.NewHook(hold), hold: hold, strict: n.opts.CancelOnSuspended}
}

// readLock returns the ReadLock of a hold.
func (n named) readLock(hold *queue.Hold) *ReadLock {
	return &ReadLock{hook: stale.NewHook(hold), hold: hold, strict: n.opts.CancelOnSuspended}
}

// heldIn reports whether ctx comes from a Lock or a ReadLock that still has an entry in one of the queues.
func (n named) heldIn(ctx context.Context) bool {
	held := func(h *queue.Hold) bool { return h.Blocks() && slices.ContainsFunc(h.Together(), n.meets) }
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

// meets reports whether a hold has its entry in one of the queues.
func (n named) meets(h *queue.Hold) bool {
	return slices.ContainsFunc(n.queues, func(q *queue.Queue) bool { return q.Err() == nil && h.Queue().Same(q) })
}

func (n named) failed(waited time.Duration, err error) *AcquireError {
	e := &AcquireError{Name: cmp.Or(n.text, n.first().Name()), Waited: waited, Err: err}
	if host := n.first().Host(); host != nil {
		e.Lease, e.State = host.Lease().ID(), host.State()
	}
	return e
}
