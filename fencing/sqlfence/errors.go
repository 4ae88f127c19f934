package sqlfence

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

var (
	// ErrTxEnded means that fn ended its transaction: by COMMIT or ROLLBACK, by a statement that
	// commits implicitly (MySQL's ALTER TABLE), or by ignoring an error with which the database ended
	// it (a deadlock; in PostgreSQL any error). What came before may be committed, and later
	// statements may have taken effect unguarded. It Is holdfast.ErrOutcomeUnknown as well, and if fn
	// returned an error, errors.Is finds it, too.
	ErrTxEnded error = txEnded{}

	// ErrRewound means that the resource has seen a larger token than that of the present holder: etcd
	// was restored from a backup (see etcdfence.BumpEpoch), or the resource is written under several
	// locks. Nothing was written. It Is fencing.ErrStale as well, and errors.As finds a
	// *fencing.MarkError. It is reported for a fencing.Holder only.
	ErrRewound = errors.New("fencing tokens have gone backwards")

	// ErrExpired means that the resource has no mark and the token is below the floor (see
	// [Guard.Expire]). Nothing was written. Release and acquire again. It Is
	// fencing.ErrStale as well, and errors.As finds a *fencing.MarkError with the floor.
	ErrExpired = errors.New("fencing token is from before expired marks")
)

type txEnded struct{}

func (txEnded) Error() string        { return "the transaction had ended before it could be committed" }
func (txEnded) Is(target error) bool { return target == holdfast.ErrOutcomeUnknown }

type rewoundError struct{ below *fencing.MarkError }

func (e *rewoundError) Error() string {
	b := e.below
	advice := "Reset the mark, which no epoch can reach, once no stale holder is left"
	if b.NeedsEpoch() <= fencing.MaxEpochStep {
		advice = fmt.Sprintf("after a restore of etcd raise the epoch to %d or more (etcdfence.BumpEpoch) and acquire again",
			b.NeedsEpoch())
	}
	return fmt.Sprintf("sqlfence: write to %s refused: token %v of %s is below the mark %v, although its holder is the "+
		"present one: %s", names.Quote(b.Resource), b.Claim.Token, names.Quote(b.Claim.Name), b.Mark, advice)
}

func (e *rewoundError) Is(target error) bool { return target == ErrRewound }
func (e *rewoundError) Unwrap() error        { return e.below }

type expiredError struct{ below *fencing.MarkError }

func (e *expiredError) Error() string {
	b := e.below
	return fmt.Sprintf("sqlfence: write to %s with token %v refused: the resource has no mark, and marks up to %v "+
		"have expired: release and acquire again", names.Quote(b.Resource), b.Claim.Token, b.Mark)
}

func (e *expiredError) Is(target error) bool { return target == ErrExpired }
func (e *expiredError) Unwrap() error        { return e.below }
