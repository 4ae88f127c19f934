// Package callback calls users' functions one at a time and in order, so that a
// slow one delays only its own queue.
package callback

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
)

// Call is one call of a user's function.
type Call struct {
	Callback string // the function, for messages
	Log      *slog.Logger
	Run      func()

	// Latest: the call replaces the last pending one if that is a Latest call, too.
	Latest bool
}

// Calls makes calls one at a time, in order, on a goroutine that exists only
// while there is a call to make. The owner joins the goroutine through Idle. The
// zero value is ready to use, and safe for concurrent use.
type Calls struct {
	mu      sync.Mutex // protects what follows
	pending []Call
	idle    chan struct{} // nil while idle; closed when the goroutine ends
	stopped bool
}

// Add enqueues c and returns at once.
func (q *Calls) Add(c Call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	if last := len(q.pending) - 1; last >= 0 && c.Latest && q.pending[last].Latest {
		q.pending[last] = c
		return
	}
	q.pending = append(q.pending, c)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.drain(q.idle) // joined by the owner, through Idle
	}
}

func (q *Calls) drain(idle chan struct{}) {
	drained := false
	defer func() {
		if drained {
			close(idle)
		} else { // a call has ended this goroutine, as runtime.Goexit does
			go q.drain(idle) // joined like this one
		}
	}()
	for {
		q.mu.Lock()
		if len(q.pending) == 0 {
			q.pending, q.idle, drained = nil, nil, true
			q.mu.Unlock()
			return
		}
		next := q.pending[0]
		q.pending = q.pending[1:]
		q.mu.Unlock()
		next.make()
	}
}

// make makes the call. A panic is logged and does not end the process: the
// goroutine is not the user's, who cannot recover on it.
func (c Call) make() {
	defer func() {
		if p := recover(); p != nil {
			c.Log.Error("holdfast: a callback panicked; later events are still delivered",
				"callback", c.Callback, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	c.Run()
}

// Stop drops all pending calls and refuses further ones. A call that is being
// made goes on.
func (q *Calls) Stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped, q.pending = true, nil
}

// Ended reports whether the queue was stopped and no call is being made.
func (q *Calls) Ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stopped && q.idle == nil
}

// Idle returns a channel that is closed when no call is pending or being made.
func (q *Calls) Idle() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle != nil {
		return q.idle
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// Name returns the name of a function and its place in the source.
func Name(fn any) string {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	if f == nil {
		return "unknown"
	}
	file, line := f.FileLine(f.Entry())
	return fmt.Sprintf("%s (%s:%d)", f.Name(), file, line)
}
