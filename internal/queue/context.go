package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/internal/judge"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// withSession returns ctx, ended also by the end of the session, with
// holdfast.ErrClosed as its cause then.
func withSession(ctx context.Context, host lease.Env) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if host.Context().Err() != nil { // AfterFunc would say so a moment later
		cancel(holdfast.ErrClosed)
	}
	stop := context.AfterFunc(host.Context(), func() { cancel(holdfast.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// giveUpWait is how long a call continues after its context has ended: for the reply to a request in flight, then for
// the removal of its entry. A healthy etcd needs far less. Otherwise the call returns, and the session continues in the
// background.
const giveUpWait = 250 * time.Millisecond

func (q *Queue) usable(ctx context.Context) error {
	if err := q.Err(); err != nil {
		return err
	}
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	return backoff.ContextErr(ctx)
}

// WhileOpen calls op with ctx, ended also by the end of the session. If the end of the session or of its client ended
// op, the error says so.
func (q *Queue) WhileOpen(ctx context.Context, op func(ctx context.Context) error) error {
	if err := q.usable(ctx); err != nil {
		return err
	}
	open, cancel := withSession(ctx, q.host)
	defer cancel()
	return q.shared.closedErr(ctx, op(open))
}

// untilLost returns a child of ctx that the loss of the lease cancels, as its cause.
func untilLost(ctx context.Context, lease *lease.Lease) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lease.Context(), func() { cancel(lease.Lost()) })
	return ctx, func() { stop(); cancel(nil) }
}

// requestContext returns the context of a request about an entry under a lease. It has ctx's values and ends with the
// lease, or grace after ctx. A request that is cut off has an unknown outcome; one that is answered a moment later has
// not.
func requestContext(ctx context.Context, lease *lease.Lease, grace time.Duration) (context.Context, func()) {
	rctx, cancel := context.WithCancel(leaseContext{lease.Context(), ctx})
	stop := context.AfterFunc(ctx, func() {
		if grace > 0 {
			time.AfterFunc(grace, cancel)
		} else {
			cancel()
		}
	})
	return rctx, func() { stop(); cancel() }
}

// leaseContext is the context of a lease with the values of another context, such
// as its span and its credentials.
type leaseContext struct {
	context.Context
	values context.Context
}

// Value asks the lease's context first: package context looks there for the context to derive a child from.
func (c leaseContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// closedErr returns holdfast.ErrClosed or holdfast.ErrClientClosed if the session or its
// client, not ctx, ended the call; otherwise err.
func (s *shared) closedErr(ctx context.Context, err error) error {
	client := s.host.Client().Ctx()
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, holdfast.ErrClientClosed):
		return err
	case s.host.Context().Err() != nil:
		return holdfast.ErrClosed
	case client != nil && client.Err() != nil:
		return holdfast.ErrClientClosed
	default:
		return err
	}
}

// retry calls op, and again with the session's pauses while its error says that
// repeating can help. Each request of op bounds itself.
func (s *shared) retry(ctx context.Context, op func(ctx context.Context) error) error {
	policy := s.host.RetryPolicy()
	policy.Attempt = 0
	conn := s.host.Client().ActiveConnection()
	return backoff.Retry(ctx, policy, func(ctx context.Context) error {
		return judge.WithConnection(conn, op(ctx))
	})
}

// retryUnder is retry until the lease is lost. Contexts and pauses are made only after the first failure.
func (s *shared) retryUnder(ctx context.Context, lease *lease.Lease, op func(ctx context.Context) error) error {
	err := op(ctx)
	if err == nil {
		return nil
	}
	ctx, cancel := untilLost(ctx, lease)
	defer cancel()
	if ended := backoff.ContextErr(ctx); ended != nil {
		return fmt.Errorf("%w; last error: %w", ended, judge.WithConnection(s.host.Client().ActiveConnection(), err))
	}
	called := true
	return s.retry(ctx, func(ctx context.Context) error {
		if called {
			called = false
			return err
		}
		return op(ctx)
	})
}

// pauses are the session's pauses between the rounds of a loop.
type pauses struct{ backoff *jitter.Pauses }

// next makes the next pause. failed is what the round before has ended with; nil: it
// is not reported. It returns early when ctx or the session ends, with the reason.
func (p *pauses) next(ctx context.Context, host lease.Env, failed error) error {
	policy := host.RetryPolicy()
	if p.backoff == nil {
		p.backoff = jitter.New(policy.Initial, policy.Max, policy.Multiplier, policy.Rand)
	}
	pause := p.backoff.NextBackOff()
	if policy.Notify != nil && failed != nil {
		policy.Notify(failed, pause)
	}
	ctx, cancel := withSession(ctx, host)
	defer cancel()
	if !Sleep(ctx, pause) {
		return backoff.ContextErr(ctx)
	}
	return nil
}

// reset has next begin with the first pause again.
func (p *pauses) reset() { p.backoff = nil }

// Sleep reports whether d has passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
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
