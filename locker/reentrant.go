package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// handle is a hold as one Lock or ReadLock has it. With Options.Reentrant, several can have the same hold.
type handle struct {
	*queue.Hold
	own *own // nil without Options.Reentrant: then the handle ends with the hold
}

type mode bool

const (
	exclusive mode = false
	shared    mode = true
)

// own is what a handle has for itself.
type own struct {
	handles  *atomic.Int64           // of the hold, that are not released; stays 0 once it is 0
	done     context.Context         // ends with the handle, or with the hold and its cause
	end      context.CancelCauseFunc // of done
	forget   context.CancelFunc      // has the hold forget done
	contexts sync.Map                // that Context has made: their *context.CancelCauseFunc

	release sync.Once
	last    bool // this handle was the last one; set by release
}

func newHandle(h *queue.Hold, handles *atomic.Int64) handle {
	o := &own{handles: handles}
	o.done, o.end = context.WithCancelCause(context.Background())
	o.done, o.forget = h.Context(o.done, false)
	return handle{h, o}
}

// acquireOne acquires a name, or returns another handle of the hold that ctx comes from.
func (n named) acquireOne(ctx context.Context, mode mode, try bool) (handle, error) {
	if !n.opts.Reentrant {
		holds, err := n.acquire(ctx, try)
		if err != nil {
			return handle{}, err
		}
		return handle{Hold: holds[0]}, nil
	}
	if h, err := n.reenter(ctx, mode); err != nil {
		return handle{}, n.failed(0, err)
	} else if h.Hold != nil {
		return h, nil
	}
	holds, err := n.enqueue(ctx, try)
	if err != nil {
		return handle{}, err
	}
	first := new(atomic.Int64)
	first.Store(1)
	return newHandle(holds[0], first), nil
}

// reenter returns another handle of the hold that ctx comes from. It has no Hold if there is none to share.
func (n named) reenter(ctx context.Context, mode mode) (handle, error) {
	if err := n.opts.validate(); err != nil {
		return handle{}, err
	}
	outer, found := n.carriedBy(ctx)
	switch {
	case !found:
		return handle{}, nil
	case mode == exclusive && outer.Token() == 0: // two readers that wait for each other would wait for ever
		return handle{}, fmt.Errorf("%w for reading: unlock it before you lock it for writing", holdfast.ErrReentrant)
	case outer.own == nil:
		return handle{}, fmt.Errorf("%w, and took it without Options.Reentrant", holdfast.ErrReentrant)
	case outer.Live():
	case outer.Blocks(): // ended by an administrator, and not unlocked
		return handle{}, fmt.Errorf("%w and must unlock it: %w", holdfast.ErrReentrant, outer.Hold.Check())
	default:
		return handle{}, nil // it has ended meanwhile
	}
	handles := outer.own.handles
	for left := handles.Load(); left > 0; left = handles.Load() {
		if handles.CompareAndSwap(left, left+1) {
			return newHandle(outer.Hold, handles), nil
		}
	}
	return handle{}, nil // the last handle is being released
}

// ended returns what has ended the handle, or nil.
func (h handle) ended() error {
	if h.own == nil || h.own.done.Err() == nil {
		return nil
	}
	return context.Cause(h.own.done)
}

// Check is the hold's Check until the handle has ended.
func (h handle) Check() error {
	if err := h.ended(); err != nil {
		return err
	}
	return h.Hold.Check()
}

// Progress is the hold's Progress until the handle has ended.
func (h handle) Progress() error {
	if err := h.ended(); err != nil {
		return err
	}
	return h.Hold.Progress()
}

// Done returns a channel that is closed when the handle has ended.
func (h handle) Done() <-chan struct{} {
	if h.own == nil {
		return h.Hold.Done()
	}
	return h.own.done.Done()
}

// Context is the hold's Context, for contexts that end with the handle.
func (h handle) Context(ctx context.Context, strict bool) (context.Context, context.CancelFunc) {
	if h.own == nil {
		return h.Hold.Context(ctx, strict)
	}
	ctx, end := context.WithCancelCause(ctx)
	ctx, forget := h.Hold.Context(ctx, strict)
	h.own.contexts.Store(&end, nil)
	if err := h.ended(); err != nil { // leave may have missed the new one
		end(err)
	}
	return ctx, func() {
		h.own.contexts.Delete(&end)
		forget()
		end(nil)
	}
}

// leave ends the handle, once, and reports whether it was the last one, so that the hold must be released.
func (h handle) leave() bool {
	if h.own == nil {
		return true
	}
	h.own.release.Do(func() {
		_ = h.Hold.Check() // which ends the hold if its lease is lost
		h.own.end(holdfast.ErrReleased)
		h.own.forget()
		h.own.contexts.Range(func(end, _ any) bool {
			(*end.(*context.CancelCauseFunc))(context.Cause(h.own.done))
			return true
		})
		h.own.last = h.own.handles.Add(-1) == 0
	})
	return h.own.last
}

// lost returns the loss that has ended the handle, or nil.
func (h handle) lost() (lost *holdfast.LostError) {
	errors.As(h.ended(), &lost)
	return lost
}

// Release ends the handle. The last one releases the hold.
func (h handle) Release(ctx context.Context) error {
	if ctx == nil || h.leave() {
		return h.Hold.Release(ctx)
	}
	if lost := h.lost(); lost != nil {
		return lost
	}
	return nil
}

// ReleaseAfterWork is Release for work that has finished. It returns the loss, if there is one.
func (h handle) ReleaseAfterWork(ctx context.Context) *holdfast.LostError {
	if h.leave() {
		return h.Hold.ReleaseAfterWork(ctx)
	}
	return h.lost()
}
