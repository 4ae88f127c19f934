package session

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
)

// maxPending bounds what waits for one slow subscriber. Beyond it the oldest
// event that ends nothing is dropped; losses and the close never are.
const maxPending = 64

// subscriber runs one callback, one event at a time, in order, on a goroutine
// that exists only while there is something to tell. Nobody waits for it but
// Close.
type subscriber struct {
	fn  func(Event)
	log *slog.Logger

	mu      sync.Mutex // protects what follows
	pending []Event
	idle    chan struct{} // nil while idle; closed when the running drain ends
	stopped bool
}

// tell queues an event and returns at once.
func (b *subscriber) tell(ev Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return
	}
	if len(b.pending) >= maxPending {
		b.dropOneLocked()
	}
	b.pending = append(b.pending, ev)
	if b.idle == nil {
		b.idle = make(chan struct{})
		go b.drain(b.idle) // joined by Session.Close through wait
	}
}

func (b *subscriber) dropOneLocked() {
	for i, ev := range b.pending {
		if !ev.terminal() {
			b.pending = append(b.pending[:i], b.pending[i+1:]...)
			return
		}
	}
}

func (b *subscriber) drain(idle chan struct{}) {
	defer close(idle)
	for {
		b.mu.Lock()
		if len(b.pending) == 0 || b.stopped {
			b.pending, b.idle = nil, nil
			b.mu.Unlock()
			return
		}
		ev := b.pending[0]
		b.pending = b.pending[1:]
		b.mu.Unlock()
		b.call(ev)
	}
}

// call keeps a panic of the callback from ending the process: it runs on a
// goroutine that the user did not start and cannot guard.
func (b *subscriber) call(ev Event) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("holdfast: a session callback panicked; it will be called again for the next event",
				"callback", b.name(), "event", ev.State.String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	b.fn(ev)
}

// stop ends the subscription; a call in progress goes on.
func (b *subscriber) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped, b.pending = true, nil
}

// over reports whether the subscription has ended and nothing of it runs.
func (b *subscriber) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped && b.idle == nil
}

// wait returns a channel that is closed when the call in progress, if any, has
// returned and nothing is pending.
func (b *subscriber) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.idle != nil {
		return b.idle
	}
	none := make(chan struct{})
	close(none)
	return none
}

// name finds the callback in the source, for the message that it is stuck.
func (b *subscriber) name() string {
	f := runtime.FuncForPC(reflect.ValueOf(b.fn).Pointer())
	if f == nil {
		return "unknown"
	}
	file, line := f.FileLine(f.Entry())
	return fmt.Sprintf("%s (%s:%d)", f.Name(), file, line)
}
