package sqlfence

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

var (
	// ErrTxEnded is returned when fn has returned and its transaction was gone: fn
	// has committed or rolled it back, also in SQL (COMMIT, ROLLBACK), has run a
	// statement that commits by itself (MySQL's ALTER TABLE), or has not returned
	// the error of one that made the database give it up (a deadlock; in
	// PostgreSQL any error). Statements that fn has run after that may have been
	// carried out on their own, without the guard. It is a mistake in fn, but for
	// one case: with prepared statements, a node of MariaDB Galera may give up a
	// transaction without saying so. Nothing is written then.
	ErrTxEnded = errors.New("the transaction had ended before it could be committed")

	// ErrRewound is returned when tokens have gone backwards. Errors that match
	// it are of type *[RewoundError].
	ErrRewound = errors.New("fencing tokens have gone backwards")
)

// UncommittedError says that fn has done its work, and that it was rolled back,
// because the holder could no longer be sure of its lock: Check failed before
// the commit. errors.Is finds what Check said: holdfast.ErrLost,
// holdfast.ErrSuspended, holdfast.ErrReleased.
type UncommittedError struct {
	Resource string
	Token    fencing.Token
	Err      error // of Check
}

func (e *UncommittedError) Error() string {
	return fmt.Sprintf("sqlfence: write to %s with token %v was rolled back before its commit: %v", names.Quote(e.Resource), e.Token, e.Err)
}

// Is makes errors.Is(err, fencing.ErrNotDone) true.
func (e *UncommittedError) Is(target error) bool { return target == fencing.ErrNotDone }

func (e *UncommittedError) Unwrap() error { return e.Err }

// RewoundError says that a resource has seen a larger token than that of the
// holder which etcd, asked afterwards, calls the present one. Two things lead
// there: etcd was restored from a backup and counts its revisions again from a
// lower one; or the resource is written under several locks, and tokens of
// different names were compared. Nothing was written.
//
// After a restore an operator must either restore once more so that revisions go
// on above the mark's (etcdutl snapshot restore --bump-revision N
// --mark-compacted), or raise the epoch to Below.NeedsEpoch (fencing.BumpEpoch);
// then holders must acquire again.
//
// errors.Is finds [ErrRewound] and fencing.ErrStale, errors.As the
// *fencing.MarkError. It is found out only for a fencing.Holder; a token that
// came from elsewhere is merely stale.
type RewoundError struct {
	Below *fencing.MarkError
}

func (e *RewoundError) Error() string {
	b := e.Below
	return fmt.Sprintf("sqlfence: write to %s refused: token %v of %s is below the mark %v, and yet its holder is the present one: "+
		"after a restore of etcd, raise the epoch to %d or more (fencing.BumpEpoch) and acquire again",
		names.Quote(b.Resource), b.Claim.Token, names.Quote(b.Claim.Name), b.Mark, b.NeedsEpoch())
}

// Is makes errors.Is(err, ErrRewound) true.
func (e *RewoundError) Is(target error) bool { return target == ErrRewound }

func (e *RewoundError) Unwrap() error { return e.Below }
