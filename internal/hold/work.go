package hold

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// OnOverrun is told of work that goes on after the loss of its hold.
type OnOverrun = func(lost *holdfast.LostError, since time.Time)

// Work is a user's function under a hold, from its call to its return. It tells OnOverrun, once, if the hold is lost
// and the function has not returned a grace after that. A nil Work tells nothing, and costs nothing.
type Work struct {
	hold   *Hold
	tell   OnOverrun
	strict bool // the function's context has ended when the session was suspended

	settled  atomic.Bool   // the function has returned, or tell is called
	returned chan struct{} // closed by End
	forget   func()        // the end of the hold
}

// NewWork returns the work of a function under a hold, which is about to be called; the caller calls End when that has
// returned. Without tell it returns nil.
func NewWork(h *Hold, tell OnOverrun, strict bool) *Work {
	if tell == nil {
		return nil
	}
	w := &Work{hold: h, tell: tell, strict: strict, returned: make(chan struct{})}
	held, forget := h.Context(context.Background(), false)
	unwatch := context.AfterFunc(held, w.watch) // its goroutine ends with the grace, or with the function
	w.forget = func() { unwatch(); forget() }
	return w
}

// End says that the function has returned.
func (w *Work) End() {
	if w == nil {
		return
	}
	w.settled.Store(true)
	close(w.returned)
	w.forget()
}

// watch runs when the hold has ended.
func (w *Work) watch() {
	lost := overrunnable(*w.hold.cause.Load())
	if lost == nil {
		return
	}
	if lost.Cause == holdfast.CauseKicked {
		w.awaitKick()
	}
	late := w.late(lost)
	grace := time.NewTimer(w.grace(lost) - late)
	defer grace.Stop()
	select {
	case <-w.returned:
	case <-grace.C:
		w.overrun(lost, w.hold.until.Add(-late))
	}
}

// kickGrace is how long a function may end its work after a kick, before its grace begins: it was asked, and its name
// stays taken.
const kickGrace = 30 * time.Second

// awaitKick waits until kickGrace has passed, an administrator takes the entry away, or the function returns.
func (w *Work) awaitKick() {
	kicked := time.NewTimer(kickGrace)
	defer kicked.Stop()
	select {
	case <-w.returned:
	case <-kicked.C:
	case <-w.hold.forcing():
	}
}

// Overrun tells OnOverrun now, unless it was told: the hold is about to be lost by cause, because the function goes on
// since its context has ended. It returns when OnOverrun does.
func (w *Work) Overrun(cause holdfast.Cause, since time.Time) {
	if w == nil {
		return
	}
	lost := w.hold.lost(cause)
	if before := w.hold.cause.Load(); before != nil {
		lost = overrunnable(*before)
	}
	if lost != nil {
		w.overrun(lost, since)
	}
}

// overrunnable returns the loss that has ended a hold; nil if the program has released it or closed its session.
func overrunnable(cause error) (lost *holdfast.LostError) {
	if errors.As(cause, &lost) && lost.Cause == holdfast.CauseClosed {
		return nil
	}
	return lost
}

func (w *Work) overrun(lost *holdfast.LostError, since time.Time) {
	if w.settled.CompareAndSwap(false, true) {
		w.tell(lost, since)
	}
}

// late is how long after its cause the loss was noticed: by a process that was paused, long after.
func (w *Work) late(lost *holdfast.LostError) time.Duration {
	l := w.hold.life
	switch lost.Cause {
	case holdfast.CauseExpired:
		return max(0, lost.Since-w.hold.grant.Lease.Trust())
	case holdfast.CauseMaxHold:
		return max(0, l.until.Sub(l.since)-w.hold.request.MaxHold)
	default:
		return 0
	}
}

// grace is the time that the function has after a loss. After a revocation the next holder may hold one lock delay
// later; after an expiry, one drift margin and one lock delay. A function whose context has ended when the session was
// suspended has had its time.
func (w *Work) grace(lost *holdfast.LostError) time.Duration {
	if w.strict && lost.Cause == holdfast.CauseExpired {
		return 0
	}
	return min(w.hold.host.LockDelay(), w.hold.grant.Lease.Margin()) / 2
}
