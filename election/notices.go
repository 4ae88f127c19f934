package election

import (
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/internal/callback"
)

// notices makes the callbacks of one Run, one at a time and in order. Run joins
// their goroutine as it returns.
type notices struct {
	log   *slog.Logger
	queue callback.Queue
}

type notice struct {
	callback string // the option's name
	call     func()
	replaced bool // by the next of its kind, if that comes before this is called
}

// tell queues a notice and returns at once.
func (n *notices) tell(next notice) {
	n.queue.Add(callback.Call{Callback: next.callback, Log: n.log, Run: next.call, Latest: next.replaced})
}

// finish waits until all callbacks have been called, for at most limit, and logs
// the one that is still running then.
func (n *notices) finish(limit time.Duration) {
	patience := time.NewTimer(limit)
	defer patience.Stop()
	select {
	case <-n.queue.Idle():
	case <-patience.C:
		running, pending := n.queue.Running()
		n.log.Warn("holdfast: Run returns while an election callback is still running", "callback", running, "waiting", pending)
	}
}
