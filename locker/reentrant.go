package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/hold"
)

// own is what a handle has for itself when several share a hold (Options.Reentrant).
type own struct {
	handles *atomic.Int64           // of the hold, not yet released; stays 0 once it is 0
	done    context.Context         // ends with the handle, or with the hold and its cause
	end     context.CancelCauseFunc // ends done
	forget  context.CancelFunc      // has the hold forget done

	release sync.Once
	givenUp chan struct{} // closed by release
	last    bool          // this handle was the last; set by release
}

// newOwn returns what a handle has for itself. handles counts those of the hold, this one among them; nil: it is the
// first.
func newOwn(h *hold.Hold, handles *atomic.Int64) *own {
	if handles == nil {
		handles = new(atomic.Int64)
		handles.Store(1)
	}
	o := &own{handles: handles, givenUp: make(chan struct{})}
	o.done, o.end = context.WithCancelCause(context.Background())
	o.done, o.forget = h.Context(o.done, false)
	return o
}

// reenter returns another handle of the hold of outer. It has no hold if there is none to share.
func (n *named) reenter(outer *handle) (handle, error) {
	switch {
	case !n.first().Reader && outer.hold.Token() == 0: // two readers that wait for each other would wait for ever
		return handle{}, fmt.Errorf("%w for reading: unlock it before you lock it for writing", holdfast.ErrReentrant)
	case outer.own == nil:
		return handle{}, fmt.Errorf("%w, and took it without Options.Reentrant", holdfast.ErrReentrant)
	case outer.hold.Live():
	case outer.hold.Blocks(): // ended by an administrator, and not unlocked
		return handle{}, fmt.Errorf("%w and must unlock it: %w", holdfast.ErrReentrant, outer.hold.Check())
	default:
		return handle{}, nil // it has ended meanwhile
	}
	handles := outer.own.handles
	for left := handles.Load(); left > 0; left = handles.Load() {
		if handles.CompareAndSwap(left, left+1) {
			return n.handle(outer.hold, newOwn(outer.hold, handles)), nil
		}
	}
	return handle{}, nil // the last handle is being released
}

// context returns a child of ctx, a context of the hold. The child ends soon after the handle has ended. No safety
// depends on the moment: until the last handle is released the name stays taken, and the release of the hold cancels
// ctx before anything is removed.
func (o *own) context(ctx context.Context, forget context.CancelFunc) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(o.done, func() { end(context.Cause(o.done)) }) // ends at once
	return ctx, func() {
		stop()
		forget()
		end(nil)
	}
}

// ended returns what has ended the handle, or nil.
func (h *handle) ended() error {
	if h.own == nil {
		return nil
	}
	return context.Cause(h.own.done)
}

// leave ends a handle that has own, once, and reports whether it was the last: then the hold must be released.
func (h *handle) leave() bool {
	h.own.release.Do(func() {
		close(h.own.givenUp)
		_ = h.hold.Check() // ends the hold if its lease is lost: the loss must be the cause, and no release
		h.own.end(holdfast.ErrReleased)
		h.own.forget()
		h.own.last = h.own.handles.Add(-1) == 0
	})
	return h.own.last
}

// lost returns the loss that has ended the handle, or nil.
func (h *handle) lost() (lost *holdfast.LostError) {
	errors.As(h.ended(), &lost)
	return lost
}
