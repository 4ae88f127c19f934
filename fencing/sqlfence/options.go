package sqlfence

import (
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
)

// Options are the policies of a [Guard]. The zero value is the default.
type Options struct {
	// Table is the table of marks: a name, or a schema's and a name with a dot
	// between. Default [DefaultTable]. Each part is 1 to 63 letters, digits and
	// underscores of ASCII, the first no digit. It is quoted as it is written,
	// so that in PostgreSQL "Fence" and "fence" are two tables. All writers of a
	// resource must use the same table.
	Table string

	// Isolation is the isolation level of the transactions: LevelDefault (the
	// database's own), LevelReadUncommitted, LevelReadCommitted,
	// LevelRepeatableRead or LevelSerializable, as far as the driver knows it.
	// The guard is right at each of them. In PostgreSQL, from LevelRepeatableRead
	// on, whoever waited for another writer of the same resource fails with a
	// serialisation failure; use Retry there.
	Isolation sql.IsolationLevel

	// Retry, if not nil, repeats what failed because the database chose to
	// give up this transaction for the sake of another: serialisation failures,
	// deadlocks, SQLITE_BUSY. All of it is repeated, fn with it, in a new
	// transaction, after a new Check. Set it only where fn may run again: what
	// it did in its transaction is undone, what it did elsewhere is not.
	// Nothing but the context bounds the attempts. Default nil: no repetition.
	Retry *backoff.Policy

	// Transient tells Retry of errors that it does not know by itself. True
	// means: the database has refused this, rolled back all of the transaction,
	// and may accept it another time. It must not be true for a connection that
	// was lost. It is asked with what fn, the driver and the database returned.
	//
	// Known already are errors with a method SQLState() string that returns
	// 40001 or 40P01 (pgx, lib/pq), the numbers 1213, 1205, 1020 and 3101 of
	// github.com/go-sql-driver/mysql, and SQLITE_BUSY and SQLITE_LOCKED of
	// modernc.org/sqlite. Default nil.
	Transient func(error) bool

	// Auditor is told of every write that the guard refuses: stale tokens, those
	// of another lock, and missing ones. Default nil: slog.Default(), at Warn.
	Auditor fencing.Auditor
}

func (o *Options) validate() error {
	switch o.Isolation {
	case sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
	default:
		return &holdfast.ArgumentError{Argument: "Options.Isolation", Reason: "is " + o.Isolation.String() + ", which is not one of its values"}
	}
	if o.Retry == nil {
		return nil
	}
	return o.Retry.Validate()
}
