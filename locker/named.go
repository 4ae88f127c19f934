package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// named is what an acquisition acquires: the name of a lock as writers or as readers use it, or several, with options.
type named struct {
	queues queue.Set // the first one's name is that of the lock; none in a Mutex{}
	text   string    // for errors; empty: the name
	opts   Options
	bad    error // what is wrong with the options; set by check

	keeps  bool // Options.MinHold is for it: it is a Mutex
	shares bool // Options.Reentrant is for it: it is a Mutex or an RWMutex
}

// maxMinHold bounds Options.MinHold: only an administrator can free a name that is taken by mistake.
const maxMinHold = 31 * 24 * time.Hour

// check looks for what is wrong with the options, which is an error of each call.
func (n *named) check() {
	bad := func(argument, reason string) {
		n.bad = &holdfast.ArgumentError{Argument: "Options." + argument, Reason: reason}
	}
	switch least := n.opts.MinHold; {
	case least < 0:
		bad("MinHold", "is negative")
	case least > maxMinHold:
		bad("MinHold", "is longer than 31 days")
	case n.opts.MaxHold > 0 && least > n.opts.MaxHold:
		bad("MinHold", "is longer than Options.MaxHold")
	case least > 0 && !n.keeps && n.first() != nil:
		bad("MinHold", "is for a Mutex alone")
	case n.opts.Reentrant && !n.shares && n.first() != nil:
		bad("Reentrant", "is for a Mutex and an RWMutex alone")
	default:
		n.bad = n.opts.validate()
	}
}

// at returns the name of one lock.
func at(q *queue.Queue) named { return named{queues: queue.Set{q}} }

// first returns the first queue, or nil.
func (n *named) first() *queue.Queue {
	if len(n.queues) == 0 {
		return nil
	}
	return n.queues[0]
}

// acquire acquires what is named: one hold for each queue, which are Together with that of the handle. With try it does
// not wait. With Options.Reentrant it may return another handle of the hold that ctx comes from.
func (n *named) acquire(ctx context.Context, mode mode, try bool) (handle, error) {
	if n.bad != nil {
		return handle{}, n.failed(0, n.bad)
	}
	if outer := n.carriedBy(ctx); outer != nil {
		if !n.opts.Reentrant {
			return handle{}, n.failed(0, n.reentrant(outer.hold))
		}
		// A hold that is being released can't be shared, but waited for.
		if h, err := n.reenter(outer, mode); err != nil {
			return handle{}, n.failed(0, err)
		} else if h.hold != nil {
			return h, nil
		}
	}
	start := time.Now()
	r := hold.Request{
		Request: queue.Request{Owner: n.opts.Owner, OnWait: n.opts.OnWait, Try: try},
		MinHold: n.opts.MinHold, MaxHold: n.opts.MaxHold, MaxIdle: n.opts.MaxIdle, Auditor: n.opts.Auditor,
	}
	if try {
		r.OnWait = nil
	}
	grants, err := n.queues.Acquire(ctx, r.Request)
	if err == nil {
		first := hold.Begin(grants, r)[0]
		if n.opts.Reentrant {
			handles := new(atomic.Int64)
			handles.Store(1)
			return n.handle(first, newOwn(first, handles)), nil
		}
		return n.handle(first, nil), nil
	}
	place, err := queue.Without(err)
	switch {
	case errors.Is(err, queue.ErrInDelay):
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	case errors.Is(err, queue.ErrOccupied):
		err = ErrLocked
	}
	failed := n.failed(time.Since(start), err)
	failed.Place = place
	return handle{}, failed
}

// lock returns a Lock of a hold.
func (n *named) lock(h *hold.Hold) *Lock { return &Lock{writeLock{single{n.handle(h, nil)}}} }

// readLock returns a ReadLock of a hold.
func (n *named) readLock(h *hold.Hold) *ReadLock { return &ReadLock{single{n.handle(h, nil)}} }

// carriedBy returns the handle that ctx comes from whose hold still has an entry in one of the queues, or nil. If ctx
// is nil or has ended it returns none: the queue has an error for that.
func (n *named) carriedBy(ctx context.Context) *handle {
	if ctx == nil || ctx.Err() != nil {
		return nil
	}
	for h := range fencing.Holders(ctx) {
		var of *handle
		switch lk := h.(type) {
		case *Lock:
			of = &lk.handle
		case *DowngradableLock:
			of = &lk.handle
		default:
			continue
		}
		if n.blockedBy(of.hold) {
			return of
		}
	}
	for c, _ := ctx.Value(carriedKey{}).(*carried); c != nil; c = c.outer {
		if n.blockedBy(c.handle.hold) {
			return c.handle
		}
	}
	return nil
}

// blockedBy reports whether a hold keeps one of the names taken.
func (n *named) blockedBy(h *hold.Hold) bool {
	return h.Blocks() && slices.ContainsFunc(h.Together(), n.meets)
}

// reentrant returns the error for a caller whose context comes from h. Of several names it says which is held.
func (n *named) reentrant(h *hold.Hold) error {
	met := h.Together()[slices.IndexFunc(h.Together(), n.meets)].Queue().Name()
	switch path := h.Queue(); {
	case path.Kind() == holdfast.KindTree && path.Name() != met:
		return fmt.Errorf("%w: %s, for %s", holdfast.ErrReentrant, names.Quote(met), names.Quote(path.Name()))
	case len(n.queues) > 1:
		return fmt.Errorf("%w: %s", holdfast.ErrReentrant, names.Quote(met))
	default:
		return holdfast.ErrReentrant
	}
}

// meets reports whether a hold has its entry in one of the queues.
func (n *named) meets(h *hold.Hold) bool {
	return slices.ContainsFunc(n.queues, func(q *queue.Queue) bool { return q.Err() == nil && h.Queue().Same(q) })
}

func (n *named) failed(waited time.Duration, err error) *AcquireError {
	e := &AcquireError{Kind: n.first().Kind(), Name: cmp.Or(n.text, n.first().Name()), Waited: waited, Err: err}
	if host := n.first().Host(); host != nil {
		e.Lease, e.State = host.Lease().ID(), host.State()
	}
	return e
}
