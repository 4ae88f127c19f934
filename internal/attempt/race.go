package attempt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
)

// race is one call of Once: sends of the same request, side by side.
type race[T any] struct {
	s      *Sender
	kind   Kind
	op     func(ctx context.Context) (T, error)
	ctx    context.Context // of each send
	cancel context.CancelFunc
	began  time.Time
	pauses schedule

	mu      sync.Mutex // protects what follows
	timer   *time.Timer
	repeats int  // times that it was sent again
	sends   int  // all that were begun
	running int  // those that have not returned
	pending bool // one of those that have failed may yet be carried out
	over    bool // nothing is sent any more
	won     bool // v and err are etcd's answer; otherwise err is what a send said that failed
	expired bool // it was not answered within the bound
	v       T
	err     error
	decided chan struct{} // closed once over; nil unless the caller waits
}

func newRace[T any](ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error)) *race[T] {
	r := &race[T]{s: s, kind: k, op: op, began: time.Now(), pauses: s.paces[k].schedule(k), sends: 1, running: 1}
	inner, cancel := context.WithCancel(ctx)
	r.ctx, r.cancel = requireLeader(withoutDeadline{inner}), cancel
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(min(r.pauses.after(0), r.bound()), r.repeat)
	return r
}

func (r *race[T]) bound() time.Duration { return maxAttempts * r.s.policy.Attempt }

// repeat sends again and sets the timer for the next time, or ends the race when
// its time is up. It runs on a goroutine of the timer.
func (r *race[T]) repeat() {
	left := r.bound() - time.Since(r.began)
	if left <= 0 {
		r.expire()
		r.end()
		return
	}
	n := 1
	if r.kind != Write {
		n = len(r.s.client.Endpoints())/2 + 1
	}
	r.s.count(n)
	if !r.begin(n, left) {
		r.s.count(-n)
		return
	}
	for range n - 1 {
		go r.sendBeside() // joined by Sender.Wait
	}
	r.sendBeside()
}

// begin counts n more sends; false: the race is over.
func (r *race[T]) begin(n int, left time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	r.repeats++
	r.sends += n
	r.running += n
	r.timer.Reset(min(r.pauses.after(r.repeats), left))
	return true
}

func (r *race[T]) sendBeside() {
	defer r.s.count(-1)
	r.send()
}

// send sends once, and ends the race if that was answered or was the last hope.
func (r *race[T]) send() {
	began := time.Now()
	v, err := r.op(r.ctx)
	took := time.Since(began)
	if r.kind != Renewal { // etcd serves it as a stream, which may end so after the renewal was passed on
		err = backoff.LeaderRequired(err)
	}
	pending := backoff.Pending(err)
	// An error that passes, or that leaves the outcome open, must not end a race
	// in which other sends may yet be answered.
	answered := err == nil || !backoff.Retryable(err) && !pending
	if r.returned(v, err, answered, pending) {
		if answered {
			r.s.paces[r.kind].answered(took)
		}
		r.end()
	}
}

// returned notes what a send has returned, and reports whether that ends the
// race.
func (r *race[T]) returned(v T, err error, answered, pending bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.pending = r.pending || pending
	if r.over {
		return false
	}
	if answered || !pending || r.err == nil {
		r.v, r.err, r.won = v, err, answered
	}
	r.over = answered || r.running == 0
	return r.over
}

func (r *race[T]) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.over, r.expired = true, true
	}
}

// end ends the race and cancels what is still under way.
func (r *race[T]) end() {
	r.mu.Lock()
	r.over = true
	if r.decided != nil {
		close(r.decided)
		r.decided = nil
	}
	r.timer.Stop()
	r.mu.Unlock()
	r.cancel()
}

// undecided returns nil when the race is over, and otherwise what is closed then.
func (r *race[T]) undecided() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.decided = make(chan struct{})
	}
	return r.decided
}

// result is called when the first send has returned. Others may still be under
// way.
func (r *race[T]) result(ctx context.Context) (T, bool, error) {
	if decided := r.undecided(); decided != nil {
		select {
		case <-decided:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	v, err, won, expired, sends := r.v, r.err, r.won, r.expired, r.sends
	open := r.pending || r.running > 0
	r.mu.Unlock()
	if won {
		return v, open, err
	}
	ended := backoff.ContextErr(ctx)
	if expired {
		ended = fmt.Errorf("no answer within %v, sent %d times: %w", r.bound(), sends, context.DeadlineExceeded)
	}
	switch {
	case ended == nil:
		return v, open, err
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return v, open, ended
	default:
		return v, open, fmt.Errorf("%w; last error: %w", ended, err)
	}
}

// leaderRequired is shared by all requests: who adds to metadata copies it.
var leaderRequired = metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)

// requireLeader is clientv3.WithRequireLeader, which copies the metadata, for a
// context that has none.
func requireLeader(ctx context.Context) context.Context {
	if _, ok := metadata.FromOutgoingContext(ctx); ok {
		return clientv3.WithRequireLeader(ctx)
	}
	return metadata.NewOutgoingContext(ctx, leaderRequired)
}
