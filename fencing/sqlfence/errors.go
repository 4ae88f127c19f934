package sqlfence

import (
	"errors"

	"github.com/holdfast-go/holdfast"
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
	// locks. Nothing was written. The error is a *fencing.MarkError, and Is fencing.ErrStale as well.
	// It is reported for a fencing.Holder only.
	ErrRewound = errors.New("fencing tokens have gone backwards")

	// ErrExpired means that the resource has no mark and the token is below the floor (see
	// [Guard.Expire]). Nothing was written. Release and acquire again; after a restore of
	// etcd raise the epoch before that (see etcdfence.BumpEpoch). The error is a *fencing.MarkError with
	// the floor, and Is fencing.ErrStale as well.
	ErrExpired = errors.New("fencing token is from before expired marks")
)

type txEnded struct{}

func (txEnded) Error() string        { return "the transaction had ended before it could be committed" }
func (txEnded) Is(target error) bool { return target == holdfast.ErrOutcomeUnknown }
