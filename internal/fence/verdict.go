package fence

import (
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Verdict is what an error says about guarded work.
type Verdict int

// The verdicts. The zero value is that of every error that is not recognized.
const (
	OutcomeUnknown Verdict = iota // the work may have been done, or may be later
	Done                          // no error
	NothingDone                   // not done, for a reason other than the claim
	Stale                         // refused: fencing.ErrStale
	OtherName                     // refused: fencing.ErrOtherName
	BadClaim                      // refused: fencing.ErrBadClaim
	NoClaim                       // refused: holdfast.ErrNoToken
)

// VerdictOf returns the verdict of err, which a guard returned. The first row that
// matches counts:
//
//	err                                verdict         HTTP   gRPC                 repeat?
//	nil                                Done            2xx    OK
//	holdfast.ErrOutcomeUnknown         OutcomeUnknown  500    Unknown              no: read back first
//	fencing.ErrStale                   Stale           412    FailedPrecondition   no: stop
//	fencing.ErrOtherName               OtherName       412    FailedPrecondition   no: wrong lock
//	fencing.ErrBadClaim                BadClaim        400    InvalidArgument      no: malformed
//	holdfast.ErrNoToken                 NoClaim         428    InvalidArgument      no: send a claim
//	fencing.ErrNotDone, in every       NothingDone     503    Unavailable          while the lock is held
//	  branch of joined errors
//	anything else                      OutcomeUnknown  500    Unknown              no: read back first
//
// The last row is deliberately wide. An error of a driver, a deadline or an error
// of the handler may come after the effect, and clients repeat a call that failed
// with Unavailable.
//
// A verdict is about the work that returned err. A handler that had another effect
// before must not return err as its own.
func VerdictOf(err error) Verdict {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, holdfast.ErrOutcomeUnknown):
		return OutcomeUnknown
	case errors.Is(err, fencing.ErrStale):
		return Stale
	case errors.Is(err, fencing.ErrOtherName):
		return OtherName
	case errors.Is(err, fencing.ErrBadClaim): // before ErrNoToken: token zero is both
		return BadClaim
	case errors.Is(err, holdfast.ErrNoToken):
		return NoClaim
	case allNotDone(err):
		return NothingDone
	}
	return OutcomeUnknown
}

// allNotDone reports whether every branch of err says that nothing was done.
// errors.Is would accept a single one.
func allNotDone(err error) bool {
	if err == fencing.ErrNotDone {
		return true
	}
	if e, ok := err.(interface{ Is(error) bool }); ok && e.Is(fencing.ErrNotDone) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return allNotDone(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, branch := range e.Unwrap() {
			if !allNotDone(branch) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	}
	return false
}

// String returns the verdict as it is written in logs.
func (v Verdict) String() string {
	switch v {
	case Done:
		return "done"
	case NothingDone:
		return "nothing done"
	case Stale:
		return "stale token"
	case OtherName:
		return "other name"
	case BadClaim:
		return "bad claim"
	case NoClaim:
		return "no claim"
	case OutcomeUnknown:
	}
	return "outcome unknown"
}
