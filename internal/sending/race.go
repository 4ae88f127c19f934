package sending

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/judge"
)

// race is one call of Once: copies of the same request, side by side.
type race[T any] struct {
	s      *Sender
	kind   Kind
	op     func(ctx context.Context) (T, error)
	caller context.Context
	began  time.Time
	cancel context.CancelFunc // of the first send

	mu      sync.Mutex           // protects what follows
	cancels []context.CancelFunc // of the other sends
	timer   *time.Timer
	pauses  pauses
	sends   int           // copies sent so far
	over    bool          // nothing more is sent
	decided chan struct{} // closed once over; nil unless the caller waits
	outcome outcome[T]
}

// outcome is what the copies of a request have come to.
type outcome[T any] struct {
	v       T
	err     error
	won     bool // v and err are etcd's reply; otherwise err is the error of a failed copy
	running int  // copies that have not returned
	pending bool // a copy other than the winner may have been carried out, or may be later
}

// add adds what a copy has returned, and reports whether the outcome is known: a copy was answered, or none is left.
func (o *outcome[T]) add(v T, err error, answered, pending bool) bool {
	if !pending || o.err == nil { // the error of a copy that was refused says more than that of one that hung
		o.v, o.err, o.won = v, err, answered
	}
	return answered || o.running == 0
}

func newRace[T any](
	ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error),
) (r *race[T], first context.Context) {
	r = &race[T]{s: s, kind: k, op: op, caller: ctx, began: time.Now(), pauses: s.pauses(k), sends: 1}
	r.outcome.running = 1
	first, r.cancel = r.context()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(min(r.pauses.next, s.bound()), r.repeat)
	return r, first
}

// context returns the context for copies that are sent now. What may be a write is canceled after the policy's Attempt:
// a member with more time might answer that its own deadline has passed, and etcd's client would send the write again
// unnoticed.
func (r *race[T]) context() (ctx context.Context, cancel context.CancelFunc) {
	if r.kind.mayRepeat() {
		ctx, cancel = context.WithTimeout(r.caller, r.s.policy.Attempt)
	} else {
		ctx, cancel = context.WithCancel(r.caller)
	}
	return requireLeader(withoutDeadline{ctx}), cancel
}

// repeat sends copies and sets the timer for the next time, or ends the race when its time is up. It runs on the
// timer's goroutine.
func (r *race[T]) repeat() {
	left := r.s.bound() - time.Since(r.began)
	if left <= 0 {
		r.end()
		return
	}
	n := r.s.debt.borrow(r.round())
	ctx, cancel := r.context()
	r.s.count(n)
	if !r.begin(n, left, cancel) {
		cancel()
		r.s.count(-n)
		return
	}
	for range n - 1 {
		go r.sendBeside(ctx) // joined by Sender.Wait
	}
	r.sendBeside(ctx)
}

// round is how many copies may be sent now: one for each endpoint, so that one gets past a member that hangs. What has
// been unanswered for longer than roundsFor has most likely met no such member: etcd is slow, or has no leader. One
// copy finds out as well when that is over.
func (r *race[T]) round() int {
	if time.Since(r.began) > roundsFor {
		return 1
	}
	return max(1, len(r.s.client.Endpoints())) // a client without endpoints still has its connection
}

const roundsFor = time.Second

// begin counts n more copies. It returns false if the race is over.
func (r *race[T]) begin(n int, left time.Duration, cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	r.sends += n
	r.outcome.running += n
	r.cancels = append(r.cancels, cancel)
	r.pauses.grow()
	r.timer.Reset(min(r.pauses.next, left))
	return true
}

func (r *race[T]) sendBeside(ctx context.Context) {
	defer r.s.count(-1)
	r.send(ctx)
}

// send sends one copy, and ends the race if that is answered or if no copy is left.
func (r *race[T]) send(ctx context.Context) {
	began := time.Now()
	v, err := r.op(ctx)
	took := time.Since(began)
	if r.kind != Renewal { // a renewal is a stream for etcd, which may end like this after the renewal was passed on
		err = judge.LeaderRequired(err)
	}
	pending := etcderr.Pending(err)
	// An error that may pass, or that leaves the outcome unknown, must not end a race in which other copies may
	// still be answered.
	answered := !etcderr.Retryable(err) && !pending
	if r.returned(v, err, answered, pending) {
		if answered {
			r.s.paces[r.kind].answered(took)
			r.s.debt.answered()
		}
		r.end()
	}
}

// returned records the result of a copy, and reports whether that ends the race.
func (r *race[T]) returned(v T, err error, answered, pending bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.outcome
	o.running--
	o.pending = o.pending || pending
	if r.over {
		// The winner's answer may be a consequence of this copy.
		o.pending = o.pending || err == nil
		return false
	}
	r.over = o.add(v, err, answered, pending)
	return r.over
}

// end ends the race and cancels the copies in flight.
func (r *race[T]) end() {
	r.mu.Lock()
	r.over = true
	if r.decided != nil {
		close(r.decided)
		r.decided = nil
	}
	r.timer.Stop()
	cancels := r.cancels
	r.mu.Unlock()
	r.cancel()
	for _, cancel := range cancels {
		cancel()
	}
}

// undecided returns nil if the race is over, and otherwise a channel that is closed when it is.
func (r *race[T]) undecided() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.decided = make(chan struct{})
	}
	return r.decided
}

// result waits for the end of the race and returns the result of Once. It is called when the first copy has
// returned; others may be in flight.
func (r *race[T]) result() (T, bool, error) {
	if decided := r.undecided(); decided != nil {
		select {
		case <-decided:
		case <-r.caller.Done():
		}
	}
	r.mu.Lock()
	o, sends := r.outcome, r.sends
	r.mu.Unlock()
	v, open, err := o.v, o.pending || o.running > 0, o.err
	if o.won {
		return v, open, err
	}
	silent := err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	ended := backoff.ContextErr(r.caller)
	switch {
	case ended == nil && silent:
		return v, open, fmt.Errorf("no reply within %v, sent %d times: %w",
			time.Since(r.began).Round(time.Millisecond), sends, context.DeadlineExceeded)
	case ended == nil:
		return v, open, err
	case silent:
		return v, open, ended
	default:
		return v, open, fmt.Errorf("%w; last error: %w", ended, err)
	}
}

// leaderRequired is shared by all requests; code that adds metadata copies it first.
var leaderRequired = metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)

// requireLeader is clientv3.WithRequireLeader, without copying metadata for a context that has none.
func requireLeader(ctx context.Context) context.Context {
	if _, ok := metadata.FromOutgoingContext(ctx); ok {
		return clientv3.WithRequireLeader(ctx)
	}
	return metadata.NewOutgoingContext(ctx, leaderRequired)
}
