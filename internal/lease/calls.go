package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// WithSession returns a child of ctx. The end of the session or of its client ends it, too, with holdfast.ErrClosed or
// holdfast.ErrClientClosed as the cause.
func WithSession(ctx context.Context, host *Env) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if host.Context.Err() != nil { // AfterFunc would say so a moment later
		cancel(holdfast.ErrClosed)
	}
	stop, stopToo := context.AfterFunc(host.Context, func() { cancel(holdfast.ErrClosed) }), func() bool { return true }
	if client := host.Client.Ctx(); client != nil { // clientv3 made it
		stopToo = context.AfterFunc(client, func() { cancel(holdfast.ErrClientClosed) })
	}
	return ctx, func() { stop(); stopToo(); cancel(nil) }
}

// GiveUpWait is how long a call goes on after its context has ended: for the reply to a request in flight, then for the
// removal of its entry. A healthy etcd needs far less. After that the call returns, and the session goes on in the
// background.
const GiveUpWait = 250 * time.Millisecond

// UntilLost returns a child of ctx. The loss of the lease cancels it, and is its cause.
func UntilLost(ctx context.Context, lease *Lease) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lease.Context(), func() { cancel(lease.Lost()) })
	return ctx, func() { stop(); cancel(nil) }
}

// ForRequest returns the context of a request about an entry under a lease. It has ctx's values and ends with the
// lease, or grace after ctx.
func ForRequest(ctx context.Context, lease *Lease, grace time.Duration) (context.Context, func()) {
	rctx, cancel := context.WithCancel(leaseContext{lease.Context(), ctx})
	// A request that is cut off has an unknown outcome, and its reply may come a moment later.
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return rctx, func() { stop(); cancel() }
}

// leaseContext is the context of a lease with the values of another context, such as its span. A Txn that is sent in a
// batch has none of them, so a caller's metadata must not decide what etcd does.
type leaseContext struct {
	context.Context
	values context.Context
}

// Value returns the value in the lease's context, or else in values.
func (c leaseContext) Value(key any) any {
	// Package context asks by a key of its own for the context that cancels a child. If ctx answered, whose end is
	// another, each child would cost a goroutine.
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// EndedBy returns why a call failed with err: holdfast.ErrClosed or holdfast.ErrClientClosed if the session or its
// client ended it, not ctx; otherwise err.
func EndedBy(ctx context.Context, host *Env, err error) error {
	client := host.Client.Ctx()
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, holdfast.ErrClientClosed) && !errors.Is(err, context.Canceled):
		return err // with what it says besides, unless it is of WithSession
	case host.Context.Err() != nil:
		return holdfast.ErrClosed
	case client != nil && client.Err() != nil:
		return holdfast.ErrClientClosed
	default:
		return err
	}
}

// Retry calls op, and again with the session's pauses while its error is worth a retry. Each request of op bounds
// itself.
func Retry(ctx context.Context, host *Env, op func(ctx context.Context) error) error {
	return backoff.Retry(ctx, host.Retry, func(ctx context.Context) error {
		return retry.WithConnection(host.Client.ActiveConnection(), op(ctx))
	})
}

// RetryUnder is Retry until the lease is lost.
func RetryUnder(ctx context.Context, host *Env, l *Lease, op func(ctx context.Context) error) error {
	err := op(ctx)
	if err == nil {
		return nil // most calls need no context and no pauses
	}
	return RetryAfter(ctx, host, l, err, op)
}

// RetryAfter is RetryUnder after a first call of op, by the caller, that failed with err.
func RetryAfter(
	ctx context.Context, host *Env, l *Lease, err error, op func(ctx context.Context) error,
) error {
	ctx, cancel := UntilLost(ctx, l)
	defer cancel()
	ended := retry.ContextErr(ctx)
	switch {
	case ended == nil:
	case errors.Is(err, context.Canceled): // by ForRequest, since ctx had ended; perhaps by its deadline
		return retry.WithConnection(host.Client.ActiveConnection(), ended)
	default:
		return fmt.Errorf("%w; last error: %w", ended, retry.WithConnection(host.Client.ActiveConnection(), err))
	}
	called := true
	return Retry(ctx, host, func(ctx context.Context) error {
		if called { // by the caller, so what comes first is the pause after that
			called = false
			return err
		}
		return op(ctx)
	})
}

// Pauses are the session's pauses between the rounds of a loop.
type Pauses struct{ backoff *retry.Pauses }

// Next makes the next pause. It returns early when ctx or the session ends, with the reason.
func (p *Pauses) Next(ctx context.Context, host *Env) error {
	if p.backoff == nil {
		p.backoff = retry.NewPauses(host.Retry.Initial, host.Retry.Max, host.Retry.Rand)
	}
	ctx, cancel := WithSession(ctx, host)
	defer cancel()
	Sleep(ctx, p.backoff.NextBackOff())
	return retry.ContextErr(ctx)
}

// Reset makes Next begin with the first pause again.
func (p *Pauses) Reset() { p.backoff = nil }

// Sleep reports whether d has passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Jittered returns d, more or less a tenth.
func Jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}
