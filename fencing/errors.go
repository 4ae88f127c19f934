package fencing

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/names"
)

// What errors.Is finds in the errors of guards: nothing was done. ErrStale has an exception, in package etcdfence.
var (
	// ErrStale: a guard refused a write because its token is not the newest. The write had
	// no effect. Stop the work.
	ErrStale = errors.New("fencing token is stale")

	// ErrOtherName: another lock guards the resource. The error is an *[OtherNameError]. Two shards of the same
	// name are not told apart if they write the same resource: the claims of both name NAME/.
	ErrOtherName = errors.New("fencing token is of another lock")

	// ErrBadClaim: a name, token or resource is malformed. The error is a *[ClaimError].
	ErrBadClaim = errors.New("malformed fencing claim")

	// ErrEpochStep: the epoch of a claim is more than [MaxEpochStep] above that of the mark
	// (then it Is ErrBadClaim as well), or that a bump is.
	ErrEpochStep = fmt.Errorf("epoch is more than %d ahead", MaxEpochStep)

	// ErrFull: a store has no room for the mark of a new resource.
	ErrFull = NotDone(errors.New("store of fencing marks is full"))

	// ErrNotDone: nothing was done, or all of it was rolled back. The request may be repeated while the lock is held.
	// See [NotDone].
	ErrNotDone = errors.New("nothing was done")
)

// NotDone marks err as [ErrNotDone], for stores and guards of your own. It keeps the text of err, and
// wraps it. NotDone(nil) is nil.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return &notDone{err}
}

type notDone struct{ err error }

func (e *notDone) Error() string        { return e.err.Error() }
func (e *notDone) Unwrap() error        { return e.err }
func (e *notDone) Is(target error) bool { return target == ErrNotDone }

// ClaimError says which part of a claim is malformed. It Is [ErrBadClaim].
type ClaimError struct {
	Part   string // "name", "token", "resource", or the header field
	Reason string // such as "is empty"
	Err    error  // holdfast.ErrNoToken, ErrEpochStep, that of holdfast.ParseToken, …; may be nil
}

func (e *ClaimError) Error() string {
	text := "fencing: malformed claim: " + e.Part
	if e.Reason != "" {
		text += " " + e.Reason
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is [ErrBadClaim].
func (e *ClaimError) Is(target error) bool { return target == ErrBadClaim }

// Unwrap returns Err.
func (e *ClaimError) Unwrap() error { return e.Err }

// OtherNameError says that another lock guards the resource. It Is [ErrOtherName]. The tokens were not
// compared.
type OtherNameError struct {
	Resource string
	Want     string // the lock that guards the resource
	Got      string // the lock that the claim names
}

func (e *OtherNameError) Error() string {
	return fmt.Sprintf("fencing: %s is guarded by lock %s, the claim is of lock %s: "+
		"tokens of different locks cannot be compared",
		names.Quote(e.Resource), names.Quote(e.Want), names.Quote(e.Got))
}

// Is reports whether target is [ErrOtherName].
func (e *OtherNameError) Is(target error) bool { return target == ErrOtherName }
