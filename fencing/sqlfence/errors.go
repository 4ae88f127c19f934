package sqlfence

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fencing"
)

var (
	// ErrTxEnded is returned when fn has returned nil and its transaction was
	// gone: fn has committed or rolled it back, has run a statement that commits
	// by itself (MySQL's ALTER TABLE), or has not returned the error of one that
	// made the database roll back (a deadlock). Statements that fn has run after
	// that may have been carried out on their own, without the guard. It is a
	// mistake in fn.
	//
	// PostgreSQL does not let it come to that: after an error everything but a
	// rollback fails. If fn keeps the error to itself, the commit gives
	// backoff.ErrOutcomeUnknown, though nothing is written.
	ErrTxEnded = errors.New("the transaction had ended before it could be committed")

	// ErrRewound is returned when tokens have gone backwards. Errors that match
	// it are of type *[RewoundError].
	ErrRewound = errors.New("fencing tokens have gone backwards")
)

// UncommittedError says that fn has done its work, and that it was rolled back,
// because the holder could no longer be sure of its lock: Check failed before
// the commit. errors.Is finds what Check said: session.ErrLost,
// session.ErrSuspended, session.ErrReleased.
type UncommittedError struct {
	Resource string
	Token    fencing.Token
	Err      error // of Check
}

func (e *UncommittedError) Error() string {
	return fmt.Sprintf("sqlfence: write to %s with token %v was rolled back before its commit: %v", quote(e.Resource), e.Token, e.Err)
}

func (e *UncommittedError) Unwrap() error { return e.Err }

// RewoundError says that a resource has seen a larger token than that of the
// holder which etcd, asked afterwards, calls the present one. Two things lead
// there: etcd was restored from a backup and counts its revisions again from a
// lower one; or the resource is written under several locks, and tokens of
// different names were compared. Nothing was written.
//
// errors.Is finds [ErrRewound] and fencing.ErrStale, errors.As the
// *fencing.MarkError. It is found out only for a fencing.Holder; a token that
// came from elsewhere is merely stale.
type RewoundError struct {
	Below *fencing.MarkError
}

func (e *RewoundError) Error() string {
	b := e.Below
	return fmt.Sprintf("sqlfence: write to %s refused: %v of lock %s is below the mark, %v, and yet its holder is the present one: tokens have gone backwards. "+
		"If etcd was restored from a backup, an operator must either restore it again so that its revisions go on above the mark's "+
		"(etcdutl snapshot restore --bump-revision N --mark-compacted), or raise the epoch to %d or more (fencing.BumpEpoch); then holders must acquire again. "+
		"If it was not, this resource is written under more than one lock",
		quote(b.Resource), b.Claim.Token, quote(b.Claim.Name), b.Mark, b.NeedsEpoch())
}

// Is makes errors.Is(err, ErrRewound) true.
func (e *RewoundError) Is(target error) bool { return target == ErrRewound }

func (e *RewoundError) Unwrap() error { return e.Below }
