package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
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
	if err := n.opts.validate(); err != nil {
		return nil, n.failed(0, err)
	}
	if h, held := n.carriedBy(ctx); held {
		return nil, n.failed(0, n.reentrant(h))
	}
	return n.enqueue(ctx, try)
}

// enqueue is acquire for a caller that does not wait for itself.
func (n named) enqueue(ctx context.Context, try bool) ([]*queue.Hold, error) {
	start := time.Now()
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

// lock returns a Lock of a hold.
func (n named) lock(h handle) *Lock {
	return &Lock{hook: stale.NewHook(h.Hold), hold: h, strict: n.opts.CancelOnSuspended}
}

// readLock returns a ReadLock of a hold.
func (n named) readLock(h handle) *ReadLock {
	return &ReadLock{hook: stale.NewHook(h.Hold), hold: h, strict: n.opts.CancelOnSuspended}
}

// carriedBy returns the handle that ctx comes from whose hold still has an entry in one of the queues. If ctx is nil or
// has ended it returns none: the queue has an error for that.
func (n named) carriedBy(ctx context.Context) (handle, bool) {
	if ctx == nil {
		return handle{}, false
	}
	for h := range fencing.Holders(ctx) {
		if lk, ok := h.(*Lock); ok && lk != nil && n.blockedBy(lk.hold) {
			return lk.hold, ctx.Err() == nil
		}
	}
	for c, _ := ctx.Value(carriedKey{}).(*carried); c != nil; c = c.outer {
		if n.blockedBy(c.hold) {
			return c.hold, ctx.Err() == nil
		}
	}
	return handle{}, false
}

// blockedBy reports whether a hold keeps one of the names taken.
func (n named) blockedBy(h handle) bool {
	return h.Blocks() && slices.ContainsFunc(h.Together(), n.meets)
}

// reentrant returns the error for a caller whose context comes from h. Of several names it says which is held.
func (n named) reentrant(h handle) error {
	met := h.Together()[slices.IndexFunc(h.Together(), n.meets)].Queue().Name()
	switch path := h.Queue(); {
	case path.Kind() == "tree" && path.Name() != met:
		return fmt.Errorf("%w: %s, for %s", holdfast.ErrReentrant, names.Quote(met), names.Quote(path.Name()))
	case len(n.queues) > 1:
		return fmt.Errorf("%w: %s", holdfast.ErrReentrant, names.Quote(met))
	default:
		return holdfast.ErrReentrant
	}
}

// meets reports whether a hold has its entry in one of the queues.
func (n named) meets(h *queue.Hold) bool {
	return slices.ContainsFunc(n.queues, func(q *queue.Queue) bool { return q.Err() == nil && h.Queue().Same(q) })
}

func (n named) failed(waited time.Duration, err error) *AcquireError {
	e := &AcquireError{Kind: n.first().Kind(), Name: cmp.Or(n.text, n.first().Name()), Waited: waited, Err: err}
	if host := n.first().Host(); host != nil {
		e.Lease, e.State = host.Lease().ID(), host.State()
	}
	return e
}
