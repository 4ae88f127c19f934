package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/fencetest"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestTablesOfDatabasesAreGuarded(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		var lose atomic.Bool
		db := d.pool(t, &lossy{Connector: d.connector, commit: func(real func() error) error {
			if err := real(); err != nil || !lose.CompareAndSwap(true, false) {
				return err
			}
			return io.ErrUnexpectedEOF
		}})
		through := func(g *sqlfence.Guard) fencetest.Write {
			return func(ctx context.Context, resource string, c fencing.Claim, data string, between func() error) error {
				return g.DoClaim(ctx, resource, c, func(ctx context.Context, tx *sql.Tx) error {
					return errors.Join(d.write(resource, c.Token, data)(ctx, tx), between())
				})
			}
		}
		fencetest.Test(t, fencetest.Guard{
			Write: through(d.guardOver(t, db, &sqlfence.Options{Retry: retry()})),
			Other: through(d.guard(t, &sqlfence.Options{Retry: retry()})),
			Read: func(ctx context.Context, resource string) (data string, err error) {
				query := d.sql("SELECT work FROM history WHERE " + d.exactly("resource") + " ORDER BY seq DESC LIMIT 1")
				if err = d.db.QueryRowContext(ctx, query, resource).Scan(&data); errors.Is(err, sql.ErrNoRows) {
					err = nil
				}
				return data, err
			},
			LoseReply: func() { lose.Store(true) },
		})
	})
}

// exactly compares a column with a placeholder byte for byte.
func (d *database) exactly(column string) string {
	if d.dialect == sqlfence.MySQL {
		return "BINARY " + column + " = ?"
	}
	return column + " = ?"
}
