package backoff

import (
	"context"
	"errors"
	"fmt"
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"
)

// Retry calls op until it returns nil, fails in a way that must not be
// repeated, or ctx ends, and pauses between the calls as p says. It repeats
// what is [Retryable], so op must be a read, or a write that may be carried out
// twice; op decides otherwise for a single error with [Final] and [Again].
//
// op gets a context that ends with ctx, and after p.Attempt if that is set. Its
// end is the end of that attempt only. ctx is for op to respect: Retry does not
// abandon a call that is running. A ctx that has ended before the first call
// means that op is never called.
//
// Retry returns
//
//   - nil if op did, also when ctx has ended meanwhile;
//   - what op returned, without the mark, if it is not to be repeated;
//   - when ctx ended first, an error that wraps ctx.Err(), context.Cause(ctx)
//     and what the last attempt said, so that errors.Is and errors.As find all
//     three. An attempt that did nothing but notice the end of ctx is passed
//     over in favour of the one before, which had more to say;
//   - a *holdfast.ArgumentError, with op not called, if p is invalid.
func Retry(ctx context.Context, p Policy, op func(ctx context.Context) error) error {
	if err := p.Validate(); err != nil {
		return err
	}
	l := &loop{ctx: ctx, timeout: p.Attempt, op: op}
	err := l.attempt()
	if err == errAgain {
		// Pauses are made for those who need them: most operations do not.
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
	final    bool  // last is not to be repeated
}

var (
	errAgain = errors.New("again")
	errStop  = cenkalti.Permanent(errors.New("stop"))
)

// attempt calls op once, and says how to go on: nil, errAgain or errStop.
func (l *loop) attempt() error {
	if l.ctx.Err() != nil {
		// Also here: when a pause and ctx end together, either may win.
		return errStop
	}
	l.attempts++
	err := l.call()
	if err == nil {
		return nil
	}
	// What nobody recognises, returned after ctx has ended, comes of that.
	if l.final = !Retryable(err) && (l.ctx.Err() == nil || judge(err).known); l.final {
		l.last = err
		return errStop
	}
	if l.last == nil || l.ctx.Err() == nil || !onlyContext(err) {
		l.last = err
	}
	return errAgain
}

func (l *loop) call() error {
	if l.timeout <= 0 {
		return l.op(l.ctx)
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	defer cancel()
	return l.op(ctx)
}

// again goes on after a first attempt, beginning with a pause.
//
// cenkalti looks for its own mark anywhere in an error and then returns only
// what is below it. So it is told errAgain or errStop, and never sees what op
// said.
func (l *loop) again(p Policy) error {
	pauses, err := p.New()
	if err != nil {
		return err
	}
	first := true
	return cenkalti.RetryNotify(func() error {
		if first {
			first = false
			return errAgain // the attempt before
		}
		return l.attempt()
	}, cenkalti.WithContext(pauses, l.ctx), func(_ error, pause time.Duration) {
		if p.Notify != nil {
			p.Notify(unmark(l.last), pause)
		}
	})
}

// onlyContext reports whether err says nothing but that a context ended.
func onlyContext(err error) bool {
	err = unmark(err)
	return err == context.Canceled || err == context.DeadlineExceeded
}

// Again marks err as one that [Retry] repeats whatever its class: an operation
// knows that it has not done anything yet, or that what it does cannot do harm
// twice. Again(nil) is nil.
func Again(err error) error {
	if err == nil {
		return nil
	}
	return &againError{err}
}

// Final marks err as one that [Retry] does not repeat whatever its class. It is
// the mark of cenkalti's Permanent, and either works. Where errors are wrapped,
// the outermost mark counts. Final(nil) is nil.
func Final(err error) error { return cenkalti.Permanent(err) }

type againError struct{ err error }

func (e *againError) Error() string { return e.err.Error() }
func (e *againError) Unwrap() error { return e.err }

// unmark takes off the marks that err begins with. Those further down stay:
// taking them off would lose what is wrapped around them.
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

// ContextErr returns nil while ctx is alive; then ctx.Err(), joined with
// context.Cause(ctx) where that says more.
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
