package locker

import (
	"context"
	"errors"
	"time"

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
func (n named) acquire(ctx context.Context, mode string, try bool) (handle, error) {
	start := time.Now()
	if err := n.opts.validate(); err != nil {
		return handle{}, n.failed(0, err)
	}
	if ctx != nil && n.queue.Err() == nil {
		if h, err := n.reenter(ctx, mode); err != nil {
			return handle{}, n.failed(0, err)
		} else if h.Hold != nil {
			return h, nil
		}
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
		return handle{}, failed
	}
	return n.handle(hold), nil
}

// lock returns the Lock of a hold.
func (n named) lock(h handle) *Lock {
	return &Lock{hook: stale.NewHook(h.Hold), hold: h, strict: n.opts.CancelOnSuspended}
}

func (n named) failed(waited time.Duration, err error) *AcquireError {
	e := &AcquireError{Name: n.queue.Name(), Waited: waited, Err: err}
	if host := n.queue.Host(); host != nil {
		e.Lease, e.State = host.Lease().ID(), host.State()
	}
	return e
}
