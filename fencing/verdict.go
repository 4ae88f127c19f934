package fencing

import (
	"errors"

	"github.com/holdfast-go/holdfast"
)

// Verdict is what an error says about the guarded work it was returned for, as
// [VerdictOf] tells.
type Verdict int

// The verdicts. The first is that of every error that is not recognised.
const (
	OutcomeUnknown Verdict = iota // the work may have been done, or may be yet
	Done                          // no error: it was done
	NothingDone                   // it was not done; not the claim's fault, so it may be tried again
	StaleToken                    // refused, not done: ErrStale
	OtherLock                     // refused, not done: ErrOtherName
	BadClaim                      // refused, not done: ErrBadClaim
	NoClaim                       // refused, not done: ErrNoToken
)

// ErrNotDone is found by errors.Is in the errors of guards, stores and writers
// that have failed, for whatever reason, before they had an effect, or whose
// effect was rolled back. [NotDone] makes such errors.
var ErrNotDone = errors.New("nothing was done")

// NotDone marks err as one that came before any effect: [VerdictOf] it is
// [NothingDone], unless err says something worse. It is for those who write a
// [Store] or a guard. The text stays, and errors.Is and errors.As see through.
// NotDone(nil) is nil.
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

// VerdictOf tells what err, returned by a guard, says about the work. It decides
// how httpfence and grpcfence answer. The first row that fits counts:
//
//	err                                verdict         HTTP   gRPC                 repeat?
//	nil                                Done            2xx    OK
//	holdfast.ErrOutcomeUnknown is in it OutcomeUnknown  500    Unknown              no: read back first
//	ErrStale                           StaleToken      412    FailedPrecondition   no: stop
//	ErrOtherName                       OtherLock       412    FailedPrecondition   no: wrong lock
//	ErrBadClaim                        BadClaim        400    InvalidArgument      no: wrong claim
//	ErrNoToken                         NoClaim         428    InvalidArgument      no: claim missing
//	ErrNotDone or ErrFull, and where   NothingDone     503    Unavailable          yes, while the lock is held
//	  errors are joined in each of them
//	anything else                      OutcomeUnknown  500    Unknown              no: read back first
//
// In gRPC an error that holds that of an ended context has the context's code
// (Canceled, DeadlineExceeded) in place of Unknown and Unavailable.
//
// The last row is wide on purpose: an error of a driver, a deadline, or one of
// the handler's own may come after an effect, and a client that is told
// "Unavailable" sends the call again. The verdict is about the work that returned
// err. A handler that had another effect before must not pass err on.
func VerdictOf(err error) Verdict {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, holdfast.ErrOutcomeUnknown):
		return OutcomeUnknown
	case errors.Is(err, ErrStale):
		return StaleToken
	case errors.Is(err, ErrOtherName):
		return OtherLock
	case errors.Is(err, ErrBadClaim): // before ErrNoToken: a token of zero is both
		return BadClaim
	case errors.Is(err, ErrNoToken):
		return NoClaim
	case allNotDone(err):
		return NothingDone
	}
	return OutcomeUnknown
}

// allNotDone reports whether each branch of err says that nothing was done.
// errors.Is would be content with one.
func allNotDone(err error) bool {
	if err == ErrNotDone {
		return true
	}
	if e, ok := err.(interface{ Is(error) bool }); ok && e.Is(ErrNotDone) {
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

// String returns the verdict as it is written in logs, such as "nothing done".
func (v Verdict) String() string {
	switch v {
	case Done:
		return "done"
	case NothingDone:
		return "nothing done"
	case StaleToken:
		return "stale token"
	case OtherLock:
		return "other lock"
	case BadClaim:
		return "bad claim"
	case NoClaim:
		return "no claim"
	}
	return "outcome unknown"
}
