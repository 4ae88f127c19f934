package sqlfence

import (
	"context"
	"database/sql"
	"errors"
)

// Tx is what [Marks.Raise] needs of a transaction: [SQLTx], [PgxTx], or, for another library, your
// own.
type Tx interface {
	// Run executes one statement in the transaction. If dest is empty, the statement
	// returns no rows. Otherwise it returns one, which Run scans into dest (*string and
	// *int64); if there is no row the error is sql.ErrNoRows. Placeholders are $1, $2,
	// … in PostgreSQL, and ? otherwise.
	Run(ctx context.Context, query string, args, dest []any) error
}

// SQLTx returns tx as a [Tx]. GORM has it as Statement.ConnPool; with sqlc it is the
// argument of WithTx. If tx is nil, so is the Tx.
func SQLTx(tx *sql.Tx) Tx {
	if tx == nil {
		return nil // which Raise refuses
	}
	return sqlTx{tx}
}

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Run(ctx context.Context, query string, args, dest []any) error {
	if len(dest) == 0 {
		_, err := t.tx.ExecContext(ctx, query, args...)
		return err
	}
	return t.tx.QueryRowContext(ctx, query, args...).Scan(dest...)
}

// PgxTx returns a pgx.Tx as a [Tx]: call PgxTx(tx), R is inferred. It needs pgx 5.7 or newer: an older
// pgx.ErrNoRows is not sql.ErrNoRows, and each first write of a resource would fail. A pool or connection of pgx does
// not compile, because it would raise the mark outside the transaction.
func PgxTx[R interface{ Scan(dest ...any) error }](tx interface {
	QueryRow(ctx context.Context, query string, args ...any) R
	Commit(ctx context.Context) error // only a transaction has it
}) Tx {
	return pgxTx[R]{tx}
}

type pgxTx[R interface{ Scan(dest ...any) error }] struct {
	tx interface {
		QueryRow(ctx context.Context, query string, args ...any) R
	}
}

func (t pgxTx[R]) Run(ctx context.Context, query string, args, dest []any) error {
	err := t.tx.QueryRow(ctx, query, args...).Scan(dest...)
	if len(dest) == 0 && errors.Is(err, sql.ErrNoRows) { // pgx.ErrNoRows is one
		return nil
	}
	return err
}
