package election

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/front"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/session"
)

// MaxValue is the size of the largest candidate's value: 65,536 bytes. Every observer reads it: use it for an identity
// or an address.
const MaxValue = layout.MaxData

// Election is the name of an election, with its policies. It is immutable, does no I/O when made, and may be copied and
// used by any number of goroutines.
type Election struct {
	queue *queue.Queue
	front *front.Monitor
	opts  Options
}

// New names an election in the session's namespace; see CheckName. A bad name or a nil session is an error of the first
// call.
func New(sess *session.Session, name string) *Election {
	return newElection(queue.New(lease.Open(sess), holdfast.KindElection, name))
}

// NewAt names the election of etcd's concurrency.NewElection(s, prefix), "etcdctl elect" and v3election at the same
// prefix, and shares it with them. Give exactly the prefix that they have: "/jobs/" is another election than "/jobs",
// with entries below "/jobs//", and both can have a leader.
func NewAt(sess *session.Session, prefix string) *Election {
	return newElection(queue.At(lease.Open(sess), holdfast.KindElection, prefix))
}

func newElection(q *queue.Queue) *Election {
	e := &Election{queue: q}
	if q.Err() == nil { // the first call returns it
		e.front = front.Of(q.Host().Env, q.Layout())
	}
	return e
}

// With returns a copy with these options, in place of those it had.
func (e *Election) With(o Options) *Election {
	return &Election{queue: e.queue, front: e.front, opts: o}
}

// Name is the name or prefix given to New or NewAt.
func (e *Election) Name() string { return e.queue.Name() }

// Campaign queues as a candidate and returns when it leads: first in, first out, across processes in the order in which
// etcd received them, on one session in the order of the calls. ctx bounds the campaign, not the term. Prefer Run: it
// waits for the work before it resigns.
//
// An error is a *view.AcquireError: its Err field lists the errors.Is targets. If the session loses its lease, the call
// queues again under the next lease. With a context of a live term of the same election and client the error Is
// holdfast.ErrReentrant.
func (e *Election) Campaign(ctx context.Context) (*Term, error) {
	start := time.Now()
	if err := e.validate(ctx); err != nil {
		return nil, e.failed(0, err)
	}
	h, err := hold.Acquire(ctx, e.queue, hold.Request{
		Request: queue.Request{Data: e.opts.Value}, Auditor: e.opts.Auditor,
	})
	if err != nil {
		return nil, e.failed(time.Since(start), err)
	}
	return &Term{hook: requests.NewHook(h), election: e, hold: h}, nil
}

// validate reports why a campaign cannot start, before anything is sent.
func (e *Election) validate(ctx context.Context) error {
	if err := e.opts.validate(); err != nil {
		return err
	}
	if err := e.queue.Err(); err != nil {
		return err
	}
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	for h := range fencing.Holds(ctx) {
		if t, ok := h.(*Term); ok && t != nil && t.hold.Queue().Same(e.queue) && t.hold.Blocks() {
			return holdfast.ErrReentrant
		}
	}
	return nil
}

func (e *Election) validateRun(ctx context.Context, fn func(context.Context, *Term) error) error {
	if fn == nil {
		return &holdfast.ArgumentError{Argument: "fn", Reason: "is nil"}
	}
	return e.validate(ctx)
}

func validateValue(argument, value string) error {
	if len(value) > MaxValue {
		reason := fmt.Sprintf("has %d bytes, more than %d", len(value), MaxValue)
		return &holdfast.ArgumentError{Argument: argument, Reason: reason}
	}
	return nil
}

func (e *Election) failed(waited time.Duration, err error) error {
	return hold.Failed(e.queue, e.Name(), waited, err)
}

// log returns the session's logger with the election's kind and name.
func (e *Election) log() *slog.Logger {
	return e.queue.Host().Logger.With("kind", holdfast.KindElection, "name", e.Name())
}
