package calls

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/internal/judge"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// Retry calls op, and again with the session's pauses while its error says that
// repeating can help. Each request of op bounds itself.
func Retry(ctx context.Context, host lease.Env, op func(ctx context.Context) error) error {
	policy := host.RetryPolicy()
	policy.Attempt = 0
	conn := host.Client().ActiveConnection()
	return backoff.Retry(ctx, policy, func(ctx context.Context) error {
		return judge.WithConnection(conn, op(ctx))
	})
}

// RetryUnder is Retry until the lease is lost. Contexts and pauses are made only after the first failure.
func RetryUnder(ctx context.Context, host lease.Env, l *lease.Lease, op func(ctx context.Context) error) error {
	err := op(ctx)
	if err == nil {
		return nil
	}
	ctx, cancel := UntilLost(ctx, l)
	defer cancel()
	if ended := backoff.ContextErr(ctx); ended != nil {
		return fmt.Errorf("%w; last error: %w", ended, judge.WithConnection(host.Client().ActiveConnection(), err))
	}
	called := true
	return Retry(ctx, host, func(ctx context.Context) error {
		if called {
			called = false
			return err
		}
		return op(ctx)
	})
}

// Pauses are the session's pauses between the rounds of a loop.
type Pauses struct{ backoff *jitter.Pauses }

// Next makes the next pause. failed is what the round before has ended with; nil: it
// is not reported. It returns early when ctx or the session ends, with the reason.
func (p *Pauses) Next(ctx context.Context, host lease.Env, failed error) error {
	policy := host.RetryPolicy()
	if p.backoff == nil {
		p.backoff = jitter.New(policy.Initial, policy.Max, policy.Multiplier, policy.Rand)
	}
	pause := p.backoff.NextBackOff()
	if policy.Notify != nil && failed != nil {
		policy.Notify(failed, pause)
	}
	ctx, cancel := WithSession(ctx, host)
	defer cancel()
	Sleep(ctx, pause)
	return backoff.ContextErr(ctx)
}

// Reset has Next begin with the first pause again.
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
