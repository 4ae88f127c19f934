package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/front"
	"github.com/holdfast-go/holdfast/internal/names"
)

// run reports one call of Run: to its callbacks, in order, and to the log.
type run struct {
	election *Election
	queue    callback.Queue
}

func (r *run) add(name string, call func()) {
	r.queue.Add(callback.Call{Callback: name, Log: r.election.log(), Run: call})
}

// elected reports that t begins. It reports its end as soon as that comes, or at the
// latest when the returned function is called.
func (r *run) elected(t *Term) (deposed func()) {
	opts := r.election.opts
	t.log().Info("holdfast: elected", "lease", names.Lease(t.Lease()))
	if opts.OnElected != nil {
		r.add("OnElected", func() { opts.OnElected(t) })
	}
	report := sync.OnceFunc(func() {
		reason := t.Check()
		if errors.Is(reason, holdfast.ErrReleased) { // the auditor reports losses
			t.log().Info("holdfast: resigned")
		}
		if opts.OnDeposed != nil {
			r.add("OnDeposed", func() { opts.OnDeposed(t, reason) })
		}
	})
	term, cancel := t.hold.Context(context.Background(), false)
	stop := context.AfterFunc(term, report)
	return func() {
		report()
		stop()
		cancel()
	}
}

// watchLeaders calls OnNewLeader, if it is set, until the returned function is
// called.
func (r *run) watchLeaders(ctx context.Context) (stop func()) {
	onNewLeader := r.election.opts.OnNewLeader
	if onNewLeader == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // joined by stop
		defer close(done)
		var last holdfast.Token
		err := r.election.front.Follow(ctx, r.election.reader().refresh(), func(f front.Front) {
			l := leaderOf(f)
			if l.Token == 0 || l.Token == last {
				return
			}
			last = l.Token
			r.queue.Add(callback.Call{
				Callback: "OnNewLeader", Log: r.election.log(), Run: func() { onNewLeader(l) }, Latest: true,
			})
		})
		if ctx.Err() == nil && !errors.Is(err, holdfast.ErrClosed) {
			r.election.log().Warn("holdfast: cannot watch leaders; OnNewLeader is no longer called", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// finish waits until all callbacks have returned, for at most DrainTimeout.
func (r *run) finish() {
	drain := time.NewTimer(r.election.opts.drainTimeout())
	defer drain.Stop()
	select {
	case <-r.queue.Idle():
	case <-drain.C:
		running, pending := r.queue.Running()
		r.election.log().Warn("holdfast: Run returns while a callback is still running",
			"callback", running, "pending", pending)
	}
}
