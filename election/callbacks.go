package election

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// run is what one call of Run reports to its callbacks and its log.
type run struct {
	election *Election
	notices  notices
}

// elected logs and announces that t begins. Its end is announced as soon as it
// comes, and at the latest when the returned function is called.
func (r *run) elected(t *Term) (deposed func()) {
	opts := r.election.opts
	t.log().Info("holdfast: elected")
	if opts.OnElected != nil {
		r.notices.tell(notice{callback: "OnElected", call: func() { opts.OnElected(t) }})
	}
	announce := sync.OnceFunc(func() {
		reason := t.Check()
		if errors.Is(reason, holdfast.ErrReleased) { // the auditor reports losses
			t.log().Info("holdfast: resigned")
		}
		if opts.OnDeposed != nil {
			r.notices.tell(notice{callback: "OnDeposed", call: func() { opts.OnDeposed(t, reason) }})
		}
	})
	term, cancel := t.hold.Context(context.Background(), false)
	stop := context.AfterFunc(term, announce)
	return func() {
		announce()
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
		var last fencing.Token
		err := r.election.front.Follow(ctx, r.election.reader().refresh(), func(f queue.Front) {
			l := leaderOf(f)
			if l.Token == 0 || l.Token == last {
				return
			}
			last = l.Token
			r.notices.tell(notice{callback: "OnNewLeader", call: func() { onNewLeader(l) }, replaced: true})
		})
		if ctx.Err() == nil && !errors.Is(err, holdfast.ErrClosed) {
			r.election.log().Warn("holdfast: cannot watch leaders; OnNewLeader is not called any more", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
