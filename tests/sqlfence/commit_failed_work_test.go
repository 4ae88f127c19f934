package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// The function keeps to the rules, so its error comes back as it is.
func TestErrorOfAStatementIsReturnedUnchanged(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 0)")
		queries := []string{"INSERT INTO accounts (id, balance) VALUES (1, 1)", "SELECT nothing"}
		if d.dialect == sqlfence.SQLite {
			queries = append(queries, "INSERT OR ROLLBACK INTO accounts (id, balance) VALUES (1, 1)")
		}
		for _, query := range queries {
			var own error
			err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				_, own = tx.ExecContext(ctx, query)
				return own
			})
			if own == nil || err != own {
				t.Errorf("%s: %v, want %v", query, err, own)
			}
		}
	})
}

func TestConnectionThatBreaksDuringTheWorkWritesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
			if err := d.write("r", 5, "never")(ctx, tx); err != nil {
				return err
			}
			var id int64
			if d.dialect == sqlfence.Postgres {
				if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&id); err != nil {
					return err
				}
				var ok bool
				return d.db.QueryRowContext(ctx, "SELECT pg_terminate_backend($1, 10000)", id).Scan(&ok)
			}
			if err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
				return err
			}
			_, err := d.db.ExecContext(ctx, "KILL ?", id)
			return err
		})
		if err == nil || errors.Is(err, sqlfence.ErrTxEnded) {
			t.Errorf("Do: %v", err)
		}
		t.Log(err)
		if works, _ := d.works(t, "r"); len(works) > 0 || d.mark(t, "r") != 0 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

// The function returns its own error after its connection broke. PostgreSQL knows what became of its transaction.
func TestWorkThatFailsOnABrokenConnectionIsToldWhatItCommitted(t *testing.T) {
	d := newDatabase(t, kinds[1])
	g := d.guard(t, nil)
	own := errors.New("own")
	for _, committed := range []bool{false, true} {
		resource := fmt.Sprint(committed)
		err := g.Do(t.Context(), resource, holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
			if err := d.write(resource, 5, "")(ctx, tx); err != nil {
				t.Error(err)
			}
			var pid int64
			if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				t.Error(err)
			}
			if committed {
				if _, err := tx.ExecContext(ctx, "COMMIT"); err != nil {
					t.Error(err)
				}
			}
			d.exec(t, "SELECT pg_terminate_backend(?, 10000)", pid)
			return own
		})
		if committed && (!errors.Is(err, sqlfence.ErrTxEnded) || !errors.Is(err, own)) || !committed && err != own {
			t.Errorf("committed: %v: %v", committed, err)
		}
		if works, _ := d.works(t, resource); (len(works) == 1) != committed {
			t.Errorf("committed: %v: works %v", committed, works)
		}
	}
}

func TestErrorOfWorkWhoseContextHasEndedIsReturnedUnchanged(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		own := errors.New("own")
		ctx, cancel := context.WithCancel(t.Context())
		err := g.Do(ctx, "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
			cancel()
			for err := error(nil); !errors.Is(err, sql.ErrTxDone); { // database/sql rolls back
				_, err = tx.ExecContext(t.Context(), "SELECT 1")
			}
			return own
		})
		if err != own {
			t.Errorf("Do: %v", err)
		}
	})
}
