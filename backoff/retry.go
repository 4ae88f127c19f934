package backoff

import (
	"context"
	"errors"
	"fmt"
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Retry calls op until it returns nil, fails with an error that is not etcderr.Retryable, or ctx ends; it pauses
// between the calls as p says. So op must be a read, or a write that may be carried out twice; Final and Again override
// that for a single error. The context of op ends with ctx, and after p.Attempt if that is set.
//
// Retry returns op's error, without the mark, if it must not be retried; if ctx ended first, an error that wraps
// ctx.Err(), context.Cause(ctx) and the error of the last attempt that did more than notice the end of ctx; a
// *holdfast.ArgumentError if p is invalid or ctx is nil. It does not abandon a call that is running.
func Retry(ctx context.Context, p Policy, op func(ctx context.Context) error) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if err := p.Validate(); err != nil {
		return err
	}
	l := &loop{ctx: ctx, timeout: p.Attempt, op: op}
	err := l.attempt()
	if errors.Is(err, errAgain) {
		// The pauses are made only now: most operations need none.
		err = l.again(p)
	}
	switch {
	case err == nil:
		return nil
	case l.final:
		return unmark(l.last)
	case l.last == nil:
		return ContextErr(ctx)
	}
	return fmt.Errorf("%w; attempts: %d; last error: %w", ContextErr(ctx), l.attempts, unmark(l.last))
}

// loop is one call of Retry.
type loop struct {
	ctx     context.Context
	timeout time.Duration // of an attempt
	op      func(ctx context.Context) error

	attempts int
	last     error // of the last attempt
	final    bool  // last must not be retried
}

var (
	errAgain = errors.New("again")
	errStop  = cenkalti.Permanent(errors.New("stop"))
)

// attempt calls op once. It returns nil, errAgain or errStop.
func (l *loop) attempt() error {
	if l.ctx.Err() != nil {
		// A pause may end at the same time as ctx, and then the pause may win.
		return errStop
	}
	l.attempts++
	ctx := l.ctx
	if l.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(l.ctx, l.timeout)
		defer cancel()
	}
	err := l.op(ctx)
	if err == nil {
		return nil
	}
	// An unrecognized error, returned after ctx has ended, is taken for a consequence of that end.
	if l.final = !etcderr.Retryable(err) && (l.ctx.Err() == nil || retry.Judge(err).Known); l.final {
		l.last = err
		return errStop
	}
	if l.last == nil || l.ctx.Err() == nil || !onlyContext(err) {
		l.last = err
	}
	return errAgain
}

// again makes the attempts after the first, beginning with a pause.
//
// cenkalti looks for its own mark anywhere in an error and then returns only what is below the mark. So it gets
// errAgain or errStop, and never sees op's error.
func (l *loop) again(p Policy) error {
	pauses := retry.NewPauses(p.Initial, p.Max, p.Multiplier, p.Rand)
	first := true
	return cenkalti.RetryNotify(func() error {
		if first {
			first = false
			return errAgain // the first attempt
		}
		return l.attempt()
	}, cenkalti.WithContext(pauses, l.ctx), func(_ error, pause time.Duration) {
		if p.Notify != nil {
			p.Notify(unmark(l.last), pause)
		}
	})
}

// onlyContext reports whether err only says that a context ended.
func onlyContext(err error) bool {
	err = unmark(err)
	return err == context.Canceled || err == context.DeadlineExceeded
}

// Again marks err as one that Retry retries, whatever its class. Again(nil) is nil.
func Again(err error) error {
	if err == nil {
		return nil
	}
	return &againError{err}
}

// Final marks err as one that Retry does not retry; it is cenkalti's Permanent. Of nested marks the outermost counts.
// Final(nil) is nil.
func Final(err error) error { return cenkalti.Permanent(err) }

type againError struct{ err error }

func (e *againError) Error() string { return e.err.Error() }
func (e *againError) Unwrap() error { return e.err }
func (e *againError) Again() bool   { return true }

var _ retry.Mark = (*againError)(nil)

// unmark removes the outermost marks of err. Removing a mark further down would lose the errors around it.
func unmark(err error) error {
	for {
		switch e := err.(type) {
		case *againError:
			err = e.err
		case *cenkalti.PermanentError:
			err = e.Err
		default:
			return err
		}
	}
}

// ContextErr returns ctx.Err(), joined with context.Cause(ctx) if that says more.
func ContextErr(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, cause):
		return err
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
