package hold

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// life is the time from the grant to the end. The holds of a Set have one in common: they
// end together, with one cause.
type life struct {
	holds []*Hold
	poll  *poller // of the session
	since time.Time

	stopped sync.Once             // runs the body of stop
	cause   atomic.Pointer[error] // of the end; nil while held
	until   time.Time             // the end; written by stop
	idle    *idle                 // of MaxIdle; nil without it

	mu       sync.Mutex // protects what follows
	ended    bool       // done is closed, contexts are canceled
	done     chan struct{}
	contexts map[*context.CancelCauseFunc]struct{} // of the contexts that Context has made
	limit    *time.Timer                           // of MaxHold
	forced   chan struct{}                         // closed when a kept entry is taken away; nil: made by forcing
}

// begin begins the life: from now on, the holds end with their lease, after MaxHold, and when their work is idle.
func (l *life) begin() {
	l.poll.add(l.holds)
	l.mu.Lock() // a timer may fire before it is assigned
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	if maxHold := l.holds[0].request.MaxHold; maxHold > 0 {
		l.limit = time.AfterFunc(maxHold, func() { l.endAndRelease(l.holds[0].lost(holdfast.CauseMaxHold)) })
	}
	if l.idle != nil {
		l.idle.timer = time.AfterFunc(l.idle.most, l.lookIdle)
	}
}

// Done returns a channel that is closed when the hold has ended.
func (l *life) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.ended {
			close(l.done)
		}
	}
	return l.done
}

// addContext has stop call cancel. It reports false if the hold has ended.
func (l *life) addContext(cancel *context.CancelCauseFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if l.contexts == nil {
		l.contexts = make(map[*context.CancelCauseFunc]struct{})
	}
	l.contexts[cancel] = struct{}{}
	return true
}

func (l *life) removeContext(cancel *context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.contexts, cancel)
}

// stop ends the holds with their cause, once. It returns true to the
// call that has ended them, which must then remove the entries.
//
// When stop returns, to any of its callers, every context of the holds is done. So
// no entry is ever removed while work still runs that believes it holds.
func (l *life) stop(cause error) (ended bool) {
	l.stopped.Do(func() {
		ended = true
		l.until = time.Now()
		for _, each := range l.holds {
			if !errors.Is(cause, holdfast.ErrReleased) && !errors.Is(cause, holdfast.ErrClosed) {
				each.grant.TakeFor(0)
			}
		}
		l.cause.Store(&cause)
		for cancel := range l.takeContexts() {
			(*cancel)(cause)
		}
		if !keepsEntry(cause) {
			l.poll.roster.remove(l.holds)
		}
	})
	return ended
}

// takeContexts closes Done and returns the contexts to cancel. No more are added.
func (l *life) takeContexts() map[*context.CancelCauseFunc]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit != nil {
		l.limit.Stop()
	}
	if l.idle != nil && l.idle.timer != nil {
		l.idle.timer.Stop()
	}
	if l.done != nil {
		close(l.done)
	}
	contexts := l.contexts
	l.ended, l.contexts = true, nil
	return contexts
}

// endAndRelease ends the holds, and removes their entries on goroutines of the session. It reports whether it was this
// call that has ended them.
func (l *life) endAndRelease(cause error) (ended bool) {
	if ended = l.stop(cause); ended {
		for _, each := range l.holds {
			each.removal.inBackground()
		}
	}
	return ended
}

// keepsEntry reports whether a hold that ended with that cause leaves its entry to
// Release.
func keepsEntry(cause error) bool {
	var lost *holdfast.LostError
	return errors.As(cause, &lost) && (lost.Cause == holdfast.CauseKicked || lost.Cause == holdfast.CauseRemoved)
}
