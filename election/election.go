package election

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// MaxValue bounds a candidate's value in bytes. Values are for an identity or
// an address: each stands in etcd, and is read by every observer.
const MaxValue = queue.MaxData

// Election is the name of an election, with its policies. It holds nothing
// itself: each leadership is a *Term. It is immutable, does no I/O when made,
// and may be shared and copied freely.
type Election struct {
	queue *queue.Queue
	front *queue.FrontReader
	opts  Options
}

// named is the election of a queue.
func named(q *queue.Queue) *Election {
	front, _ := q.Reader() // the error is the queue's, of the first call
	return &Election{queue: q, front: front}
}

// New names an election in the session's namespace; see CheckName. A bad name
// or a nil session is an error of the first call.
func New(sess *session.Session, name string) *Election {
	return named(queue.New(sess, "election", name))
}

// NewAt names the election that etcd's concurrency.NewElection(s, prefix),
// "etcdctl elect" and v3election use for the same prefix: candidates and
// observers of both kinds meet there. The session's namespace is still used for
// what is not an entry.
func NewAt(sess *session.Session, prefix string) *Election {
	return named(queue.At(sess, "election", prefix))
}

// With returns a copy with other policies.
func (e *Election) With(o Options) *Election {
	return &Election{queue: e.queue, front: e.front, opts: o}
}

// Name is the name, or prefix, as it was given.
func (e *Election) Name() string { return e.queue.Name() }

// Campaign queues as a candidate and returns the term when this candidate
// leads: first in, first out over all processes by the order in which etcd saw
// them, and among the goroutines of one session by the order of their calls.
// value is what observers see; at most MaxValue bytes, any of them. ctx bounds
// the campaign only.
//
// A nil error means that a linearizable read has seen the term's own entry at
// the front. Any error is a *CampaignError and means that nothing is held; its
// Err field lists the reasons to test for. A lost session does not end the call:
// it queues again under the session's next lease until ctx ends. Two calls with a
// plain context are two candidates, also in one goroutine; a context from a live
// term of the same election, made with the same client, gets
// holdfast.ErrReentrant.
//
// RunWhileLeader and Run are the forms to prefer: they wait for the work
// before they let go of the term.
func (e *Election) Campaign(ctx context.Context, value string) (*Term, error) {
	start := time.Now()
	if err := e.admit(ctx, value); err != nil {
		return nil, e.failed(0, err)
	}
	hold, err := e.queue.Acquire(ctx, e.request(value))
	if err != nil {
		return nil, e.failed(time.Since(start), err)
	}
	return e.begin(hold, value), nil
}

// request is what a candidate brings to the queue.
func (e *Election) request(value string) queue.Request {
	return queue.Request{Value: func() string { return e.queue.NewValue("", "", value) }, Auditor: e.opts.Auditor}
}

// admit says what is wrong with a candidacy before anything is sent.
func (e *Election) admit(ctx context.Context, value string) error {
	if err := e.opts.check(); err != nil {
		return err
	}
	if err := e.usable(ctx); err != nil {
		return err
	}
	if err := checkValue(value); err != nil {
		return err
	}
	for h := range fencing.Holders(ctx) {
		if t, ok := h.(*Term); ok && t != nil && t.hold.Queue().Same(e.queue) && t.hold.Live() {
			return holdfast.ErrReentrant
		}
	}
	return nil
}

// usable says what is wrong with a call of any kind before anything is sent.
func (e *Election) usable(ctx context.Context) error {
	if err := e.queue.Err(); err != nil {
		return err
	}
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	return nil
}

func checkValue(value string) error {
	if len(value) > MaxValue {
		return &holdfast.ArgumentError{Argument: "value", Reason: fmt.Sprintf("has %d bytes, more than %d", len(value), MaxValue)}
	}
	return nil
}

func (e *Election) failed(waited time.Duration, err error) error {
	c := &CampaignError{Name: e.Name(), Waited: waited, Err: err}
	if sess := e.queue.Session(); sess != nil {
		c.Lease, c.State = sess.Lease(), sess.State()
	}
	return c
}
