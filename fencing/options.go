package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
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
	// holdfast.ErrOutcomeUnknown more often, and bound the context.
	Proceed
)

// Options are the policies of a [FencedWriter]. The zero value is the default.
type Options struct {
	// WhileSuspended is what to do while the holder is suspended. Default
	// Refuse. Another value than the three constants makes every write fail
	// with a *holdfast.ArgumentError.
	WhileSuspended WhileSuspended

	// Retry paces Wait. The zero value is backoff's default (first pause up to
	// 10 ms, later ones up to 1 s). An invalid policy, and one with an Attempt of
	// 5 s or more, makes every write fail with a *holdfast.ArgumentError.
	Retry backoff.Policy

	// Auditor is told of each write that etcd refused as stale. Default
	// LogAuditor(nil), which logs it as a warning.
	Auditor Auditor
}

func (o Options) validate() error {
	if o.WhileSuspended < Refuse || o.WhileSuspended > Proceed {
		return &holdfast.ArgumentError{Argument: "Options.WhileSuspended", Reason: fmt.Sprintf("is %d, which is not one of its values", o.WhileSuspended)}
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
		return &holdfast.ArgumentError{Argument: "Policy.Attempt", Reason: fmt.Sprintf("is %v; "+
			"it must be less than %v, after which etcd's client may send a write twice", p.Attempt, attemptLimit)}
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

// suspended reports whether err, returned by a Source's Check, says that the
// holder is suspended. A loss is final, even if it wraps a suspension.
func suspended(err error) bool {
	return errors.Is(err, holdfast.ErrSuspended) && !errors.Is(err, holdfast.ErrLost)
}
