package backoff

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Defaults for the zero fields of a [Policy].
const (
	DefaultInitial = 10 * time.Millisecond
	DefaultMax     = time.Second
)

// Policy says how long to pause between attempts. It may be copied, and used by any number of goroutines if Rand allows
// that. A zero field is its default; a value outside its range is an error, also if it only conflicts with another
// field's default.
type Policy struct {
	// Initial is the upper bound of the first pause; each next bound is twice as large. Default 10 ms, at least 1 µs.
	// Larger than an attempt usually takes, it only adds delay; much smaller, the first retries come in a burst.
	Initial time.Duration

	// Max is the upper bound of all pauses. Default 1 s, at least Initial. On average a recovery is noticed half of Max
	// late.
	Max time.Duration

	// Rand draws evenly from [0, 1). Default math/rand/v2.Float64. It must be safe for all goroutines that use the
	// policy. Results outside the range are clamped; NaN counts as the upper end.
	Rand func() float64
}

// Validate returns a *holdfast.ArgumentError for the first field outside its range, or nil. Retry calls it.
func (p Policy) Validate() error { return retry.CheckPauses("Policy", p.Initial, p.Max) }

// Retry calls op until it returns nil, fails with an error not etcderr.Retryable, or ctx ends; it pauses
// between the calls as p says. So op must be a read, or a write that may be carried out twice. Mark an error as final
// with Permanent of github.com/cenkalti/backoff/v4. Each call of op gets ctx: bound a single call with a context of its
// own, for etcd's client waits as long as its context, also for a connection.
//
// Retry returns op's error, without the mark, if it must not be retried; if ctx ended first, an error that wraps
// ctx.Err(), context.Cause(ctx) and the last error that said more than the end of ctx; a
// *holdfast.ArgumentError if p is invalid or ctx is nil. It does not abandon a call that is running.
func Retry(ctx context.Context, p Policy, op func(ctx context.Context) error) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if err := p.Validate(); err != nil {
		return err
	}
	var pauses *retry.Pauses // most operations need none
	var last error
	attempts := 0
	for ctx.Err() == nil {
		attempts++
		err := op(ctx)
		if err == nil {
			return nil
		}
		// After the end of ctx an error of unknown kind is taken for a consequence of the end.
		if !etcderr.Retryable(err) && (ctx.Err() == nil || retry.Judge(err).Known) {
			return retry.Unmark(err)
		}
		if err = retry.Unmark(err); last == nil || ctx.Err() == nil || !onlyContext(err) {
			last = err
		}
		if ctx.Err() != nil {
			break
		}
		if pauses == nil {
			pauses = retry.NewPauses(p.Initial, p.Max, p.Rand)
		}
		pause := pauses.NextBackOff()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	if last == nil {
		return retry.ContextErr(ctx)
	}
	return fmt.Errorf("%w; attempts: %d; last error: %w", retry.ContextErr(ctx), attempts, last)
}

// onlyContext reports whether err only says that a context ended.
func onlyContext(err error) bool { return err == context.Canceled || err == context.DeadlineExceeded }
