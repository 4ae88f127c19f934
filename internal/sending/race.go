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
	ctx    context.Context // of all sends
	cancel context.CancelFunc
	pauses pauses // of the timer, which runs once at a time

	mu      sync.Mutex // protects what follows
	timer   *time.Timer
	rounds  int  // that were borrowed
	last    bool // nothing more is sent
	over    bool // and no reply is waited for
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
	ctx context.Context, s *Sender, k Kind, p pauses, op func(ctx context.Context) (T, error),
) *race[T] {
	r := &race[T]{s: s, kind: k, op: op, caller: ctx, pauses: p}
	r.outcome.running = 1
	ctx, r.cancel = context.WithCancel(ctx)
	r.ctx = requireLeader(withoutDeadline{ctx})
	if k == Unhurried {
		return r
	}
	pause := r.pauses.pause()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(pause, r.repeat)
	return r
}

// repeat sends copies, or stands in line for that. It runs on the timer's goroutine.
func (r *race[T]) repeat() {
	round := func() bool { return r.sendCopies(r.s.endpoints(), 1) }
	b := r.s.budgetOf(r.kind)
	switch {
	case !r.kind.isOwn():
		b.wait(round)
	case !b.borrow():
		r.sendCopies(1, 0)
	case !round():
		b.pay(b.cost())
	}
}

// sendCopies sends n copies, a round or one alone, on goroutines that Sender.Wait joins, and sets the timer for the
// next time. It returns false if nothing more is to be sent.
func (r *race[T]) sendCopies(n, rounds int) bool {
	pause := r.pauses.pause()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last {
		return false
	}
	r.rounds += rounds
	r.outcome.running += n
	r.timer.Reset(pause)
	r.s.count(n)
	for range n {
		go func() {
			defer r.s.count(-1)
			r.send(true)
		}()
	}
	return true
}

// send sends the request, and ends the race if that is answered or if nothing is in flight any more.
func (r *race[T]) send(again bool) {
	ctx := r.ctx
	if r.kind == Write && r.s.attempt > 0 {
		bounded, cancel := context.WithTimeout(ctx, r.s.attempt)
		defer cancel()
		ctx = withoutDeadline{bounded}
	}
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
	if !r.returned(v, err, answered, pending) {
		return
	}
	if answered {
		r.s.latest[r.kind].Store(int64(took))
		b, answers := r.s.budgetOf(r.kind), 1
		if again {
			answers = r.rounds * b.cost()
		}
		b.pay(answers)
	}
	r.end()
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
	r.last = r.last || r.over
	return r.over
}

// end ends the race and cancels the copies in flight.
func (r *race[T]) end() {
	r.stop(true)
	r.cancel()
}

func (r *race[T]) stop(over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.over = true, r.over || over
	if r.timer != nil {
		r.timer.Stop()
	}
}

// result waits for the end of the race and returns the result of Once. It is called when the first send has returned;
// copies may be in flight. If it has failed, they are the last: a slow etcd answers "request timed out" for what it
// carries out all the same, and more copies would only hear that, too.
func (r *race[T]) result() (T, bool, error) {
	r.stop(false)
	<-r.ctx.Done() // by end, or with the caller's
	r.mu.Lock()
	o := r.outcome
	r.mu.Unlock()
	open := o.pending || o.running > 0
	ended := backoff.ContextErr(r.caller)
	switch {
	case o.won || ended == nil:
		return o.v, open, o.err
	case o.err == nil || errors.Is(o.err, context.Canceled) || errors.Is(o.err, context.DeadlineExceeded):
		return o.v, open, ended
	default:
		return o.v, open, fmt.Errorf("%w; last error: %w", ended, o.err)
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

// withoutDeadline hides the deadline of a context, which still ends at that time. gRPC would send the deadline to the
// member, which could then be the first to give up; etcd's client would repeat the request, a write as well.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
