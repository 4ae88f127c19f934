package sqlfence

import (
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
)

// Options configure a [Guard]. The zero value is the default.
type Options struct {
	// Table is the table of marks, with or without a schema ("fence", "app.fence"). Each part has 1 to
	// 63 ASCII letters, digits and underscores, does not start with a digit, and is quoted. All writers of a
	// resource must use the same table. Default [DefaultTable].
	Table string

	// Isolation is the level of the transactions, up to LevelSerializable, if the driver knows it. The
	// guard is correct at each. In PostgreSQL from LevelRepeatableRead on, set Retry. Default
	// LevelDefault, the database's own.
	Isolation sql.IsolationLevel

	// Retry, if not nil, repeats the whole transaction, fn included, if the database gave it up for
	// another one: serialization failures, deadlocks, SQLITE_BUSY. Effects outside the transaction are
	// not undone. Only the context bounds the attempts. Default nil: no retries.
	Retry *backoff.Policy

	// Transient adds errors to which Retry applies: true only if the database has rolled back the
	// whole transaction, or Rollback will, never for a lost connection. For such an error of fn it is
	// [ErrTxEnded] if MySQL or SQLite has no transaction any more, because fn may have committed it.
	// Default nil.
	//
	// Known without it: SQLSTATE 40001 and 40P01 of errors with a method SQLState() string (pgx,
	// lib/pq); 1213, 1205, 1020 and 3101 of github.com/go-sql-driver/mysql; SQLITE_BUSY and
	// SQLITE_LOCKED of modernc.org/sqlite.
	Transient func(error) bool

	// Auditor receives a record of each refused write: stale, of another lock, or
	// without a token. Default: the default logger, at Warn.
	Auditor audit.Auditor
}

func (o Options) validate() error {
	switch o.Isolation {
	case sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted,
		sql.LevelRepeatableRead, sql.LevelSerializable:
	default:
		return &holdfast.ArgumentError{Argument: "Options.Isolation",
			Reason: "is " + o.Isolation.String() + ", which is not supported"}
	}
	if o.Retry == nil {
		return nil
	}
	return o.Retry.Validate()
}
