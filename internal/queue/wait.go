package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

const (
	// recheckAfter bounds the harm of a watch that lives and has still missed a
	// deletion. No such watch is known. It also bounds how long a waiting attempt
	// does not know that an entry of its own was deleted by hand, or written to by
	// an administrator. Nothing else tells it before the entry ahead goes. That
	// costs the attempt its place and delays no other one: those behind watch the
	// entry, and in the other queues of a set they wait as long as behind a set that
	// has lost nothing, or recheckAfter.
	recheckAfter = 30 * time.Second

	// maxPatience bounds by how much a waiter's patience with its watch grows.
	maxPatience = 16
)

// watched is what a waiter watches.
type watched struct {
	key  string
	opts []clientv3.OpOption

	over func() bool                                               // the wait is over
	look func(ctx context.Context) error                           // reads what no event tells
	hear func(ctx context.Context, events []*clientv3.Event) error // handles the events of one or more revisions
}

// awaitAhead waits until the entry ahead is gone, and returns nil when it is known
// what stands ahead now.
func (e *entry) awaitAhead(ctx context.Context) error {
	ahead := e.ahead
	return e.await(ctx, watched{
		key:  string(ahead.Key),
		opts: []clientv3.OpOption{clientv3.WithFilterPut()},
		over: func() bool { return e.ahead != ahead },
		look: e.verify,
		hear: func(ctx context.Context, events []*clientv3.Event) error {
			return e.judge(ctx, events[0].Kv.ModRevision)
		},
	})
}

// await watches until the wait is over.
func (e *entry) await(ctx context.Context, w watched) error {
	patience := time.Duration(1)
	for {
		err := e.q.retry(ctx, func(ctx context.Context) error {
			if w.over() { // found by the look after a watch that failed
				return nil
			}
			err := e.watch(ctx, w, patience)
			// The member may hang, or it may be overloaded. Watches that are made
			// again and again would add to the load, so wait longer each time.
			patience = min(2*patience, maxPatience)
			return err
		})
		if err != nil || w.over() {
			return err
		}
		// The watch was healthy before it ended, so pause and patience start anew.
		patience = 1
		var pauses pauses
		if err := pauses.next(ctx, e.q.host, nil); err != nil {
			return err
		}
	}
}

// watch watches until the wait is over. It returns nil before that if a healthy watch
// ended. patience multiplies the times after which a silent watch is given up.
func (e *entry) watch(ctx context.Context, w watched, patience time.Duration) error {
	st, limit := e.q.shared.streams.Pick()
	armed, err := st.Arm(ctx, watching.Request{
		Client: e.q.host.Client(), Open: e.q.host.Context(), Key: w.key, Opts: w.opts, Within: patience * limit, Look: w.look,
	})
	switch {
	case errors.Is(err, watching.ErrUnarmed) && w.over():
		return nil
	case err != nil:
		return err
	}
	defer armed.Close()
	telemetry.Armed(ctx)
	return e.listen(ctx, w, armed, patience*watching.SilentAfter)
}

// listen looks once, and then handles what a watch that stands tells, until it was silent for that long. It returns as
// watch does.
func (e *entry) listen(ctx context.Context, w watched, armed *watching.Watch, silence time.Duration) error {
	if err := w.look(ctx); err != nil || w.over() {
		return err
	}
	tick := time.NewTicker(watching.ProgressEvery)
	defer tick.Stop()
	for heard, read := time.Now(), time.Now(); ; {
		news, err := armed.Next(ctx, tick.C)
		switch {
		case errors.Is(err, watching.ErrTick) && time.Since(heard) >= silence:
			return armed.GiveUp("the watch is on a member that does not answer")
		case errors.Is(err, watching.ErrTick):
			armed.AskProgress()
		case err != nil && ctx.Err() == nil && armed.Healthy():
			return nil
		case err != nil:
			return backoff.Again(err)
		default: // progress, which any response is
			heard = time.Now()
		}
		if len(news.Events) > 0 {
			if err := w.hear(ctx, news.Events); err != nil || w.over() {
				return err
			}
		}
		if time.Since(read) >= recheckAfter {
			if err := w.look(ctx); err != nil || w.over() {
				return err
			}
			read = time.Now()
		}
	}
}

// retry calls op, and again with the session's pauses while its error says that
// repeating can help. Each request of op bounds itself.
func (q *Queue) retry(ctx context.Context, op func(ctx context.Context) error) error {
	policy := q.host.RetryPolicy()
	policy.Attempt = 0
	conn := q.host.Client().ActiveConnection()
	return backoff.Retry(ctx, policy, func(ctx context.Context) error {
		return etcderr.WithConnection(conn, op(ctx))
	})
}

// pauses are the session's pauses between the rounds of a loop.
type pauses struct{ backoff *backoff.BackOff }

// next makes the next pause. failed is what the round before has ended with; nil: it
// is not reported. It returns early when ctx or the session ends, with the reason.
func (p *pauses) next(ctx context.Context, host lease.Host, failed error) (err error) {
	policy := host.RetryPolicy()
	if p.backoff == nil {
		if p.backoff, err = policy.New(); err != nil {
			return err
		}
	}
	pause := p.backoff.NextBackOff()
	if policy.Notify != nil && failed != nil {
		policy.Notify(failed, pause)
	}
	ctx, cancel := withSession(ctx, host)
	defer cancel()
	if !sleep(ctx, pause) {
		return backoff.ContextErr(ctx)
	}
	return nil
}

// reset has next begin with the first pause again.
func (p *pauses) reset() { p.backoff = nil }

// withSession returns ctx, ended also by the end of the session, with
// holdfast.ErrClosed as its cause then.
func withSession(ctx context.Context, host lease.Host) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if host.Context().Err() != nil { // AfterFunc would say so a moment later
		cancel(holdfast.ErrClosed)
	}
	stop := context.AfterFunc(host.Context(), func() { cancel(holdfast.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// sleep reports whether d has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jittered returns d, more or less a tenth.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}
