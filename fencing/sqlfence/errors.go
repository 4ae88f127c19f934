package sqlfence

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

var (
	// ErrTxEnded means that fn ended its transaction, which only Do may do: by a COMMIT
	// or ROLLBACK, by a statement that commits implicitly (MySQL's ALTER TABLE), or by
	// ignoring an error after which the database gave the transaction up (a deadlock;
	// in PostgreSQL any error). Statements after that may have taken effect unguarded.
	// Fix fn. The exception is MariaDB Galera with prepared statements, where a node may
	// give up a transaction silently; then nothing is written.
	ErrTxEnded = errors.New("the transaction had ended before it could be committed")

	// ErrRewound means that tokens went backwards: the resource has seen a larger token
	// than that of the present holder. Either etcd was restored from a backup, or the
	// resource is written under several locks. Nothing was written. It Is
	// fencing.ErrStale as well, and errors.As finds a *fencing.MarkError.
	//
	// After a restore, raise the epoch to MarkError.NeedsEpoch (fencing.BumpEpoch), or
	// restore again with revisions moved forward (etcdutl snapshot restore
	// --bump-revision N --mark-compacted). Then holders must acquire again.
	//
	// It is reported for a fencing.Holder only, because etcd is asked whether it still
	// holds. A bare token or a claim gets fencing.ErrStale.
	ErrRewound = errors.New("fencing tokens have gone backwards")

	// ErrExpired means that the resource has no mark, and a mark above the token has
	// expired, perhaps that of this resource (see [Guard.Expire]). Release and acquire
	// again. Nothing was written. It Is fencing.ErrStale as well, and errors.As finds a
	// *fencing.MarkError whose Mark is the floor.
	ErrExpired = errors.New("fencing token is from before expired marks")
)

type rewoundError struct{ below *fencing.MarkError }

func (e *rewoundError) Error() string {
	b := e.below
	return fmt.Sprintf("sqlfence: write to %s refused: token %v of %s is below the mark %v, although its holder is the "+
		"present one: after a restore of etcd raise the epoch to %d or more (fencing.BumpEpoch) and acquire again",
		names.Quote(b.Resource), b.Claim.Token, names.Quote(b.Claim.Name), b.Mark, b.NeedsEpoch())
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
