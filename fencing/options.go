package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backoff"
)

// WhileSuspended says what a writer does while its holder is suspended: it may
// still hold, but cannot prove it.
type WhileSuspended int

const (
	// Refuse returns the holder's error at once. The default.
	Refuse WhileSuspended = iota

	// Wait asks the holder again, paced by Options.Retry, until it is connected
	// again, is lost, or the context ends.
	Wait

	// Proceed sends anyway. No stale write gets through: etcd compares. But the
	// session is suspended because etcd does not answer, so expect
	// backoff.ErrOutcomeUnknown more often, and bound the context.
	Proceed
)

// Options are the policies of a [FencedWriter]. The zero value is the default.
type Options struct {
	// WhileSuspended is what to do while the holder is suspended. Default
	// Refuse. Another value than the three constants makes every write fail
	// with an *[OptionError].
	WhileSuspended WhileSuspended

	// Retry paces Wait. The zero value is backoff's default (first pause up to
	// 10 ms, later ones up to 1 s). An invalid policy, and one with an Attempt of
	// 5 s or more, makes every write fail with a *backoff.PolicyError.
	Retry backoff.Policy

	// Auditor is told of each write that etcd refused as stale. Default
	// LogAuditor(nil), which logs it as a warning.
	Auditor Auditor
}

// OptionError says which field of [Options] cannot be used.
type OptionError struct {
	Field string
	Value any
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("Options.%s: %v is not one of its values", e.Field, e.Value)
}

func (o Options) validate() error {
	if o.WhileSuspended < Refuse || o.WhileSuspended > Proceed {
		return &OptionError{"WhileSuspended", int(o.WhileSuspended)}
	}
	return checkRetry(o.Retry)
}

// An etcd server answers DeadlineExceeded after 5 s at the earliest, and etcd's
// client then sends a write again by itself if the request's context is alive. So
// no attempt lasts as long.
const (
	attemptLimit   = 5 * time.Second
	defaultAttempt = 4 * time.Second
)

// checkRetry is p.Validate, and the limit of an attempt.
func checkRetry(p backoff.Policy) error {
	if p.Attempt >= attemptLimit {
		return &backoff.PolicyError{Field: "Attempt", Value: p.Attempt,
			Reason: fmt.Sprintf("must be less than %v, after which etcd's client may send a write twice", attemptLimit)}
	}
	return p.Validate()
}

// admit returns nil if s may be used now, as far as it knows.
func (o Options) admit(ctx context.Context, s Source) error {
	err := s.Check()
	if err == nil || !suspended(err) {
		return err
	}
	switch o.WhileSuspended {
	case Proceed:
		return nil
	case Wait:
		return backoff.Retry(ctx, o.Retry, func(context.Context) error {
			err := s.Check()
			if suspended(err) {
				return backoff.Again(err)
			}
			return backoff.Final(err)
		})
	}
	return err
}

// suspended reports whether err, returned by a Source's Check, says "not now,
// maybe later".
func suspended(err error) bool {
	var t interface{ Temporary() bool }
	if !errors.As(err, &t) || !t.Temporary() {
		return false
	}
	// A network error, and context.DeadlineExceeded above all, calls itself
	// temporary too. As the cause inside the error of a holder that is lost it
	// must not make that look like a suspended one.
	_, network := t.(interface{ Timeout() bool })
	return !network
}
