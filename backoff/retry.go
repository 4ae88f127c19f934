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

// minInitial is the smallest Initial. With a smaller one the loop would spin.
const minInitial = time.Microsecond

// Policy says how long to pause between attempts, and how long one may take. It may be copied, and used by any number
// of goroutines if its functions allow that. A zero field is its default; a value outside its range is an error, also
// if it only conflicts with another field's default.
type Policy struct {
	// Initial is the upper bound of the first pause; each next bound is twice as large. Default 10 ms, at least 1 µs.
	// Larger than an attempt usually takes, it only adds delay; much smaller, the first retries come in a burst.
	Initial time.Duration

	// Max is the upper bound of all pauses. Default 1 s, at least Initial. On average a recovery is noticed half of Max
	// late.
	Max time.Duration

	// Attempt is the timeout of each attempt's context. Default 0: none. etcd's client blocks while no endpoint can be
	// reached, and notices a half-open connection only by timeouts.
	Attempt time.Duration

	// Rand draws evenly from [0, 1). Default math/rand/v2.Float64. It must be safe for all goroutines that use the
	// policy. Results outside the range are clamped; NaN counts as the upper end.
	Rand func() float64
}

// Validate returns a *holdfast.ArgumentError for the first field outside its range, or nil. Retry calls it.
func (p Policy) Validate() error {
	p = p.withDefaults()
	switch {
	case p.Initial < minInitial:
		return invalid("Initial", "is %v; it must be %v or more", p.Initial, minInitial)
	case p.Max < p.Initial:
		return invalid("Max", "is %v; it must not be less than Initial, %v", p.Max, p.Initial)
	case p.Attempt < 0:
		return invalid("Attempt", "is %v; it must not be negative", p.Attempt)
	}
	return nil
}

func invalid(field, reason string, args ...any) error {
	return &holdfast.ArgumentError{Argument: "Policy." + field, Reason: fmt.Sprintf(reason, args...)}
}

func (p Policy) withDefaults() Policy {
	if p.Initial == 0 {
		p.Initial = DefaultInitial
	}
	if p.Max == 0 {
		p.Max = DefaultMax
	}
	return p
}

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
