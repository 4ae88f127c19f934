package requests

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// race is a call of Once: sends of the same request, side by side.
type race[T any] struct {
	s      *Sender
	kind   Kind
	op     func(ctx context.Context) (T, error)
	ctx    context.Context // of all sends
	cancel context.CancelFunc
	pauses pauses         // of the timer; it runs once at a time
	copies sync.WaitGroup // all sends but the first

	mu      sync.Mutex // protects what follows
	timer   *time.Timer
	pause   time.Duration // the latest of the timer's
	rounds  int           // borrowed from the budget
	last    bool          // nothing more is sent
	outcome outcome[T]
}

// outcome sums up what became of the sends of a request.
type outcome[T any] struct {
	v       T
	err     error
	won     bool // v and err are etcd's reply; otherwise err is that of a failed send
	pending bool // a send other than the winner may have been carried out, or may be later
}

func newRace[T any](
	ctx context.Context, s *Sender, k Kind, p pauses, op func(ctx context.Context) (T, error),
) *race[T] {
	r := &race[T]{s: s, kind: k, op: op, pauses: p}
	ctx, r.cancel = context.WithCancel(ctx)
	r.ctx = requireLeader(withoutDeadline{ctx})
	r.pause = r.pauses.pause()
	r.mu.Lock() // the timer may fire before it is assigned
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(r.pause, r.repeat)
	return r
}

// repeat sends copies, or stands in line for that. After end it gives up the copies in flight. It runs on the timer's
// goroutine.
func (r *race[T]) repeat() {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if last {
		r.cancel()
		return
	}
	round := func() bool { return r.sendCopies(r.s.endpoints(), 1) }
	b := r.s.budgetOf(r.kind)
	switch {
	case !r.kind.isOwn():
		b.wait(round)
	case b.borrow():
		round()
	default:
		r.sendCopies(1, 0)
	}
}

// sendCopies sends n copies, a round or a single copy, and sets the timer for the next. end joins their goroutines. It
// returns false if the race is over.
func (r *race[T]) sendCopies(n, rounds int) bool {
	pause := r.pauses.pause()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last {
		return false
	}
	r.rounds += rounds
	r.pause = pause
	r.timer.Reset(pause)
	for range n {
		r.copies.Go(func() { r.send(true) })
	}
	return true
}

// copyWithin is how long a copy waits for its reply; etcd gives up a request after 7 s by default. In an outage gRPC
// keeps each copy, one in each 5 s, and sends all when etcd is back.
const copyWithin = time.Minute

// send sends the request. If its reply decides the race, send cancels the other sends.
func (r *race[T]) send(again bool) {
	ctx, within := r.ctx, time.Duration(0)
	switch {
	case r.kind == Write && !r.s.own:
		within = Patience
	case again:
		within = copyWithin
	}
	if within > 0 {
		bounded, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		ctx = withoutDeadline{bounded}
	}
	began := time.Now()
	v, err := r.op(ctx)
	took := time.Since(began)
	answered, pending := true, false
	if err != nil {
		if r.kind != Renewal { // etcd may end the stream of a renewal like this after the renewal was passed on
			err = retry.LeaderRequired(err)
		}
		pending = etcderr.Pending(err)
		// An error may pass, or leave the outcome unknown. Then another copy may still have a reply, so it does not end the
		// race.
		answered = !etcderr.Retryable(err) && !pending
	}
	if !r.returned(v, err, answered, pending) {
		return
	}
	r.cancel()
	// A request may have waited for hours, for a connection or in a process that stood still: the next pause is no longer.
	r.s.latest[r.kind].Store(int64(min(took, longest)))
	b, answers := r.s.budgetOf(r.kind), 1
	if again { // some member hangs while others answer: rounds cost etcd little, and are paid back
		answers = r.rounds * b.cost()
	}
	b.pay(answers)
}

// returned records the result of a send, and reports whether it wins the race.
func (r *race[T]) returned(v T, err error, answered, pending bool) (wins bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.outcome
	// Two copies of a write may both be carried out:
	//
	//	rev 20  the first copy puts the key; its reply is slow
	//	        the second copy finds the key, and is refused. Its reply comes first, and wins
	//	        the first copy's reply comes: its caller must not blame another client for the refusal
	o.pending = o.pending || pending || o.won && err == nil // the winner's reply may be a consequence of this copy
	if o.won {
		return false
	}
	if !pending || o.err == nil { // a refusal says more than the error of a send that hung
		o.v, o.err, o.won = v, err, answered
	}
	r.last = r.last || answered
	return answered
}

// end joins the copies in flight, and sends no more.
func (r *race[T]) end() {
	r.mu.Lock()
	// A slow etcd answers "request timed out" to a first send, and carries it out all the same. More copies would only
	// hear the same.
	r.last = true
	// A reply to a copy may take one more pause:
	//
	//	0 ms    a read is sent to A
	//	150 ms  a copy goes to B, and B hangs. The next pause is 225 ms
	//	200 ms  A's connection is reset. Nothing more is sent
	//	425 ms  the copy is given up. A loop around Once sends the read again, to C
	r.timer.Reset(r.pause)
	r.mu.Unlock()
	r.copies.Wait()
	r.timer.Stop()
}

// leaderRequired is shared by all requests. Copy it before you add metadata.
var leaderRequired = metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)

// requireLeader is clientv3.WithRequireLeader, and copies no metadata where there is none.
func requireLeader(ctx context.Context) context.Context {
	if _, ok := metadata.FromOutgoingContext(ctx); ok {
		return clientv3.WithRequireLeader(ctx)
	}
	return metadata.NewOutgoingContext(ctx, leaderRequired)
}

// withoutDeadline hides the deadline of a context; the context still ends at that time. gRPC would send the deadline to
// the member. If the member then gave up first, etcd's client would repeat the request, even a write.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
