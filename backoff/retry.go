package backoff

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Retry calls op until it returns nil, fails with an error not etcderr.Retryable, or ctx ends; it pauses
// between the calls as p says. So op must be a read, or a write that may be carried out twice. Mark an error as final
// with Permanent of github.com/cenkalti/backoff/v4. The context of op ends with ctx, and after p.Attempt if that is
// set.
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
		err := attempt(ctx, p.Attempt, op)
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

// attempt calls op once, with a context that ends after timeout; 0: with ctx.
func attempt(ctx context.Context, timeout time.Duration, op func(ctx context.Context) error) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return op(ctx)
}

// onlyContext reports whether err only says that a context ended.
func onlyContext(err error) bool { return err == context.Canceled || err == context.DeadlineExceeded }
