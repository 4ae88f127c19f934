package calls

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// WithSession returns ctx, ended also by the end of the session, with
// holdfast.ErrClosed as its cause then.
func WithSession(ctx context.Context, host lease.Env) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if host.Context().Err() != nil { // AfterFunc would say so a moment later
		cancel(holdfast.ErrClosed)
	}
	stop := context.AfterFunc(host.Context(), func() { cancel(holdfast.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// GiveUpWait is how long a call continues after its context has ended: for the reply to a request in flight, then for
// the removal of its entry. A healthy etcd needs far less. Otherwise the call returns, and the session continues in the
// background.
const GiveUpWait = 250 * time.Millisecond

// UntilLost returns a child of ctx that the loss of the lease cancels, as its cause.
func UntilLost(ctx context.Context, lease *lease.Lease) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lease.Context(), func() { cancel(lease.Lost()) })
	return ctx, func() { stop(); cancel(nil) }
}

// ForRequest returns the context of a request about an entry under a lease. It has ctx's values and ends with the
// lease, or grace after ctx. A request that is cut off has an unknown outcome; one that is answered a moment later has
// not.
func ForRequest(ctx context.Context, lease *lease.Lease, grace time.Duration) (context.Context, func()) {
	rctx, cancel := context.WithCancel(leaseContext{lease.Context(), ctx})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
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

// EndedBy returns holdfast.ErrClosed or holdfast.ErrClientClosed if the session or its
// client, not ctx, ended the call that failed with err; otherwise err.
func EndedBy(ctx context.Context, host lease.Env, err error) error {
	client := host.Client().Ctx()
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, holdfast.ErrClientClosed):
		return err
	case host.Context().Err() != nil:
		return holdfast.ErrClosed
	case client != nil && client.Err() != nil:
		return holdfast.ErrClientClosed
	default:
		return err
	}
}
