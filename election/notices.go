package election

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// notices makes the callbacks of one Run: one at a time, in order, on a
// goroutine that exists only while there is something to tell. Nobody waits
// for it but the end of Run.
type notices struct {
	log *slog.Logger

	mu      sync.Mutex // protects what follows
	pending []notice
	calling string        // the callback being called
	idle    chan struct{} // nil while idle; closed when the running drain ends
}

type notice struct {
	callback string // the option's name
	call     func()
	replaced bool // by the next of its kind, if that comes before this is called
}

// tell queues a notice and returns at once.
func (n *notices) tell(next notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := len(n.pending) - 1; last >= 0 && n.pending[last].replaced && next.replaced {
		n.pending[last] = next
		return
	}
	n.pending = append(n.pending, next)
	if n.idle == nil {
		n.idle = make(chan struct{})
		go n.drain(n.idle) // joined by finish
	}
}

func (n *notices) drain(idle chan struct{}) {
	defer close(idle)
	for {
		n.mu.Lock()
		if len(n.pending) == 0 {
			n.idle, n.calling = nil, ""
			n.mu.Unlock()
			return
		}
		next := n.pending[0]
		n.pending = n.pending[1:]
		n.calling = next.callback
		n.mu.Unlock()
		n.guarded(next)
	}
}

// guarded keeps a panic of the callback from ending the process: it runs on a
// goroutine that the user did not start and cannot guard.
func (n *notices) guarded(next notice) {
	defer func() {
		if p := recover(); p != nil {
			n.log.Error("holdfast: an election callback panicked; it will be called again",
				"callback", next.callback, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	next.call()
}

// finish waits until all is told, for at most limit, and names the callback
// that keeps it waiting.
func (n *notices) finish(limit time.Duration) {
	n.mu.Lock()
	idle := n.idle
	n.mu.Unlock()
	if idle == nil {
		return
	}
	patience := time.NewTimer(limit)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
		n.mu.Lock()
		calling, waiting := n.calling, len(n.pending)
		n.mu.Unlock()
		n.log.Warn("holdfast: Run returns while an election callback is still running", "callback", calling, "waiting", waiting)
	}
}
