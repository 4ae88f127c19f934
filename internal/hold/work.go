package hold

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// OnOverrun is told of work beyond the loss of its hold.
type OnOverrun = func(lost *holdfast.LostError, since time.Time)

// Work is a user's function under a hold. It begins with the call. It ends when the function returns, when the program
// gives up what the function holds (Unlock, Resign), and when the program closes the session. Unlock ends it after a
// loss, too: the function may go on with something else. If the hold is lost and the work has not ended a grace later,
// Work tells OnOverrun, once. A nil Work tells nothing, and costs nothing.
type Work struct {
	hold    *Hold
	tell    OnOverrun
	strict  bool            // the function's context has ended when the session was suspended
	givenUp <-chan struct{} // closed when the program gives up what the function holds

	settled  atomic.Bool   // the function has returned, or tell is called
	returned chan struct{} // closed by End
	forget   func()        // the end of the hold
}

// NewWork begins the work of a function under a hold. The caller calls the function, and End when it has returned.
// givenUp is closed when the function's own share of the hold is given up; nil: the function has the hold for itself,
// and Release gives it up. Without tell NewWork returns nil.
func NewWork(h *Hold, givenUp <-chan struct{}, tell OnOverrun, strict bool) *Work {
	if tell == nil {
		return nil
	}
	if givenUp == nil {
		givenUp = h.released.channel(&h.mu) // closed when Release is called, be it after a loss
	}
	w := &Work{hold: h, tell: tell, strict: strict, givenUp: givenUp, returned: make(chan struct{})}
	held, forget := h.Context(context.Background(), false)
	unwatch := context.AfterFunc(held, w.watch) // its goroutine ends with the grace, or with the function
	w.forget = func() { unwatch(); forget() }
	return w
}

// End is called when the function has returned.
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
	var lost *holdfast.LostError
	if !errors.As(*w.hold.cause.Load(), &lost) {
		return // the program has released the hold
	}
	if lost.Cause == holdfast.CauseKicked {
		w.goesOn(kickGrace, w.hold.forced.channel(&w.hold.mu))
	}
	// A pause of the process counts as grace: the next holder does not wait for it to end.
	late := w.late(lost)
	if w.goesOn(w.grace(lost)-late, nil) {
		w.overrun(lost, w.hold.until.Add(-late))
	}
}

// kickGrace is the time from a kick to the beginning of the function's grace. An administrator has only asked: until
// the entry is taken away, no other client can hold.
const kickGrace = 30 * time.Second

// goesOn waits for that long, or until sooner is closed, and reports whether the work has not ended by then.
func (w *Work) goesOn(wait time.Duration, sooner <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.returned:
	case <-w.givenUp:
	case <-w.hold.host.Context.Done():
	case <-sooner:
	case <-timer.C:
	}
	return !w.ended() // several may be ready
}

// ended reports whether the work has ended: the function need not have returned.
func (w *Work) ended() bool {
	select {
	case <-w.returned:
	case <-w.givenUp:
	case <-w.hold.host.Context.Done(): // Close has been called
	default:
		return false
	}
	return true
}

// Overrun tells OnOverrun now, unless it was told, and returns when OnOverrun does: the hold is about to be lost by
// cause, because the function goes on since its context has ended.
func (w *Work) Overrun(cause holdfast.Cause, since time.Time) {
	if w == nil {
		return
	}
	lost := w.hold.lost(cause)
	if before := w.hold.cause.Load(); before != nil {
		_ = errors.As(*before, &lost) // a release, and Close, have ended the work
	}
	if !w.ended() {
		w.overrun(lost, since)
	}
}

func (w *Work) overrun(lost *holdfast.LostError, since time.Time) {
	if w.settled.CompareAndSwap(false, true) {
		w.tell(lost, since)
	}
}

// late is how long after its cause the loss was noticed: long after, by a process on pause.
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

// grace is how long the function may go on after a loss.
func (w *Work) grace(lost *holdfast.LostError) time.Duration {
	if w.strict && lost.Cause == holdfast.CauseExpired {
		return 0 // its context ended when the session was suspended: it has had its time
	}
	// After a revocation the next holder may hold one lock delay later; after an expiry, one drift margin and one lock
	// delay. Half of the shorter is left to end the process. With the defaults, of a revoked lease:
	//
	//	0 s     the session hears of the revocation: the function's context ends
	//	0.75 s  the function goes on: OnOverrun is called
	//	2 s     the next one holds
	return min(w.hold.host.LockDelay, w.hold.grant.Lease.Margin()) / 2
}
