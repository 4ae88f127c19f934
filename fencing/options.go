package fencing

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// WhileSuspended is what a [FencedWriter] does while its holder is suspended: it
// probably still holds its lock, but cannot prove it.
type WhileSuspended int

const (
	// Refuse returns the holder's error at once. This is the default. It is not 0, which With takes for not set.
	Refuse WhileSuspended = iota + 1

	// Wait checks the holder again, paced by WriterOptions.Retry, until it is
	// connected, lost, or the context ends.
	Wait

	// Proceed sends the write anyway, still fenced: bound the context and expect
	// holdfast.ErrOutcomeUnknown.
	Proceed
)

// WriterOptions configure a [FencedWriter]. The zero value is the default. An
// invalid value makes every write fail with a *holdfast.ArgumentError, unsent.
type WriterOptions struct {
	// WhileSuspended says what to do while the holder is suspended. Default
	// Refuse.
	WhileSuspended WhileSuspended

	// Retry paces Wait. Default: backoff's (pauses from 10 ms up to 1 s). An Attempt
	// of 5 s or more is an error; see EtcdMarksOptions.Retry.
	Retry backoff.Policy

	// Auditor receives a record of each write that etcd refused as stale. Default:
	// the default logger, at Warn.
	Auditor audit.Auditor
}

func (o WriterOptions) validate() error {
	if o.WhileSuspended < 0 || o.WhileSuspended > Proceed {
		return invalid("WriterOptions.WhileSuspended", "is %d, which is not one of its constants", o.WhileSuspended)
	}
	_, err := requests.Policy("WriterOptions.Retry", o.Retry)
	return err
}

// admit checks s, and waits for it to be connected if the options say so.
func (o WriterOptions) admit(ctx context.Context, s interface{ Check() error }) error {
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
	case 0, Refuse:
	}
	return err
}

// suspended reports whether err, from a Source's Check, may pass. A loss does not,
// even if it wraps a suspension.
func suspended(err error) bool {
	return errors.Is(err, holdfast.ErrSuspended) && !errors.Is(err, holdfast.ErrLost)
}

func invalid(argument, reason string, args ...any) error {
	return &holdfast.ArgumentError{Argument: argument, Reason: fmt.Sprintf(reason, args...)}
}

var errNilContext = invalid("ctx", "is nil")
