package election

import (
	"cmp"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/watching"
)

const defaultDrainTimeout = 30 * time.Second

// Options are the policies of an Election. The zero value of each field is its default. A value out of range is a
// *holdfast.ArgumentError of the first call.
type Options struct {
	// Value is what observers see of this candidate while it leads, such as an identity or an address: at most MaxValue
	// bytes. Term.Proclaim changes it for one term. Default: empty.
	Value string

	// DrainTimeout is how long Run and RunWhileLeader wait for the function after its context has ended; then the term
	// is lost with holdfast.CauseNotDrained, or an earlier cause. Default 30 s. Too short, and the next
	// leader starts beside the function's cleanup; a stuck function blocks the next leader for so long.
	DrainTimeout time.Duration

	// CancelOnSuspended cancels a term's contexts already when its session is suspended: see locker.Options.
	CancelOnSuspended bool

	// OnOverrun is called when a function of Run or RunWhileLeader has not returned in time after its term was lost.
	// Default nil.
	OnOverrun holdfast.OverrunFunc

	// Auditor is told when a term begins, is released, or is lost. A campaign waits for it. Default: the session's
	// Logger.
	Auditor audit.Auditor

	// Retry sets the pauses of Run after a failed campaign and between terms; they start over after a term of 1 s.
	// Default: up to 10 ms at first, up to 1 s later.
	Retry backoff.Policy

	// MaxAge is how long ago the last read may have been sent for an Observer's Snapshot to be Trusted. Default 15 s; at
	// least 30 ms.
	MaxAge time.Duration
}

func (o Options) validate() error {
	bad := func(field, reason string) error {
		return &holdfast.ArgumentError{Argument: "Options." + field, Reason: reason}
	}
	if err := validateValue("Options.Value", o.Value); err != nil {
		return err
	}
	switch {
	case o.DrainTimeout < 0:
		return bad("DrainTimeout", "is negative")
	case o.MaxAge != 0 && o.MaxAge < watching.MinMaxAge:
		return bad("MaxAge", "is less than 30 ms")
	}
	if err := o.Retry.Validate(); err != nil {
		return bad("Retry", err.Error())
	}
	return nil
}

func (o Options) drainTimeout() time.Duration { return cmp.Or(o.DrainTimeout, defaultDrainTimeout) }
