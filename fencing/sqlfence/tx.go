package sqlfence

import (
	"context"
	"database/sql"
	"errors"
)

// Tx is a transaction of your own, as [Marks.Raise] needs it. [SQLTx] and [PgxTx]
// make one of what database/sql and pgx have; another library takes a few lines.
type Tx interface {
	// Run carries out one statement in the transaction. If dest is empty, the
	// statement returns no rows. Otherwise it returns one, which Run scans into
	// dest (*string and *int64); without a row, the error is sql.ErrNoRows.
	// Placeholders are those of the dialect: $1 in PostgreSQL, otherwise ?.
	Run(ctx context.Context, query string, args, dest []any) error
}

// SQLTx returns tx as a [Tx]. GORM has the *sql.Tx of its transactions as
// Statement.ConnPool; with sqlc it is what was given to WithTx.
func SQLTx(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Run(ctx context.Context, query string, args, dest []any) error {
	if len(dest) == 0 {
		_, err := t.tx.ExecContext(ctx, query, args...)
		return err
	}
	return t.tx.QueryRowContext(ctx, query, args...).Scan(dest...)
}

// Row is what a query for one row returns.
type Row interface{ Scan(dest ...any) error }

// PgxTx returns a pgx.Tx as a [Tx], without an import of pgx: R is inferred, so
// that it is PgxTx(tx).
func PgxTx[R Row](tx interface {
	QueryRow(ctx context.Context, query string, args ...any) R
}) Tx {
	return pgxTx[R]{tx}
}

type pgxTx[R Row] struct {
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
