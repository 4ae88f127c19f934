package hold

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// idle ends a hold whose work makes no progress. The session's own clock decides: Check and Progress read it, so both
// are right after a pause, before any timer has fired. The timer is for work that calls neither.
type idle struct {
	most  time.Duration
	clock func() time.Duration
	last  atomic.Int64 // time of the latest progress, by the clock; tooLate once most has passed since
	timer *time.Timer  // protected by life.mu
}

const tooLate = -1

// newIdle has holds end when their work has made no progress for most. limitTime starts its timer.
func newIdle(most time.Duration, clock func() time.Duration) *idle {
	i := &idle{most: most, clock: clock}
	i.last.Store(int64(clock()))
	return i
}

// lookIdle ends the holds if their work is idle, or looks again when it may be.
func (l *life) lookIdle() {
	_ = l.holds[0].Check() // may end them
	left := l.idle.left()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done.given {
		l.idle.timer.Reset(left)
	}
}

// Progress records that the work goes on, and returns what has ended the hold, or nil. If MaxIdle has passed since the
// last call, the hold ends. Progress takes no lock and allocates nothing while held.
func (h *Hold) Progress() error {
	if cause := h.cause.Load(); cause != nil {
		return *cause
	}
	if h.idle != nil && !h.idle.progress() {
		h.endIdle()
		return *h.cause.Load()
	}
	return nil
}

func (h *Hold) endIdle() { h.endAndRelease(h.lost(holdfast.CauseIdle)) }

// left is the time until the work counts as idle.
func (i *idle) left() time.Duration { return i.most - (i.clock() - time.Duration(i.last.Load())) }

// progress records progress, and reports whether it came in time.
func (i *idle) progress() bool {
	last, now := i.last.Load(), i.clock()
	if last == tooLate || now-time.Duration(last) >= i.most {
		return !i.over()
	}
	// If another goroutine has stored something meanwhile, it was progress or the end.
	i.last.CompareAndSwap(last, int64(now))
	return i.last.Load() != tooLate
}

// over reports whether the work was idle for too long. The finding is final: no progress can be recorded any more.
func (i *idle) over() bool {
	for {
		last := i.last.Load()
		if last == tooLate {
			return true
		}
		if i.clock()-time.Duration(last) < i.most {
			return false
		}
		i.last.CompareAndSwap(last, tooLate)
	}
}
