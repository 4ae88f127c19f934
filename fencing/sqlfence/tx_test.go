package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// pgxRow is a row of a pgx.Tx, and the transaction as well.
type pgxRow struct{ err error }

func (r pgxRow) Scan(...any) error                               { return r.err }
func (r pgxRow) QueryRow(context.Context, string, ...any) pgxRow { return r }
func (r pgxRow) Commit(context.Context) error                    { return nil }

// Only a statement that returns no rows may find none.
func TestPgxTxTellsEachFailure(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		err, want error
		dest      []any
	}{
		{sql.ErrNoRows, nil, nil},
		{sql.ErrNoRows, sql.ErrNoRows, []any{new(int64)}},
		{broken, broken, nil},
		{broken, broken, []any{new(int64)}},
		{nil, nil, []any{new(int64)}},
	} {
		if err := sqlfence.PgxTx(pgxRow{c.err}).Run(t.Context(), "", nil, c.dest); err != c.want {
			t.Errorf("%v, for %d values: %v, want %v", c.err, len(c.dest), err, c.want)
		}
	}
}
