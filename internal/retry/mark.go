package retry

import (
	"context"
	"errors"
	"fmt"

	cenkalti "github.com/cenkalti/backoff/v4"
)

// Again marks err: backoff.Retry retries it, whatever its class. Again(nil) is nil.
func Again(err error) error {
	if err == nil {
		return nil
	}
	return &againError{err}
}

// Final marks err: backoff.Retry does not retry it. Of nested marks the outermost counts. Final(nil) is nil.
func Final(err error) error { return cenkalti.Permanent(err) }

// againError is what Again returns.
type againError struct{ err error }

func (e *againError) Error() string { return e.err.Error() }
func (e *againError) Unwrap() error { return e.err }

// Unmark removes the outermost marks of err. To remove a mark further down would lose the errors around it.
func Unmark(err error) error {
	for {
		switch e := err.(type) { //nolint:errorlint // the outermost marks only
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
