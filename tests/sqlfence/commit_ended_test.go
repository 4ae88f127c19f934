package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestWorkThatEndsItsTransactionIsNotTakenForDone(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		work := map[string]func(context.Context, *sql.Tx) error{
			"commits":    func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
			"rolls back": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		}
		statements := func(queries ...string) func(context.Context, *sql.Tx) error {
			return func(ctx context.Context, tx *sql.Tx) error {
				for _, query := range queries {
					if _, err := tx.ExecContext(ctx, query); err != nil {
						return err
					}
				}
				return nil
			}
		}
		const update = "UPDATE accounts SET balance = 1 WHERE id = 1"
		switch d.dialect {
		case sqlfence.Postgres:
			work["commits in SQL"] = statements("COMMIT", update)
			work["rolls back in SQL"] = statements("ROLLBACK", update)
			work["begins another in SQL"] = statements("COMMIT", "BEGIN", update)
			work["chains another in SQL"] = statements("COMMIT AND CHAIN", update)
			work["is a script with BEGIN and COMMIT"] = statements("BEGIN; "+update+"; COMMIT;", update)
			work["ignores a failed statement"] = func(ctx context.Context, tx *sql.Tx) error {
				_, _ = tx.ExecContext(ctx, "SELECT 1/0")
				return nil
			}
		case sqlfence.MySQL:
			work["commits in SQL"] = statements("COMMIT", update)
			work["begins another in SQL"] = statements("COMMIT", "START TRANSACTION", update)
			work["runs DDL, which commits"] = func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "CREATE TABLE more (id INT)")
				return err
			}
		case sqlfence.SQLite:
			work["ignores a conflict that rolled back"] = func(ctx context.Context, tx *sql.Tx) error {
				for range 2 {
					_, _ = tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO accounts (id, balance) VALUES (1, 1)")
				}
				return nil
			}
		}
		for name, fn := range work {
			if err := g.Do(t.Context(), name, holdfast.Token(5), fn); !errors.Is(err, sqlfence.ErrTxEnded) {
				t.Errorf("work that %s: %v", name, err)
			}
		}
	})
}

func TestWorkThatCommittedItselfIsNotReportedAsRolledBackNorRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, &sqlfence.Options{Retry: retry()})
		lost := &holder{token: 5}
		ctx, cancel := context.WithCancel(t.Context())
		for name, c := range map[string]struct {
			source fencing.Source
			ctx    context.Context
			after  func() error
		}{
			"then fails":                 {holdfast.Token(5), t.Context(), func() error { return gaveUp{} }},
			"then loses its lock":        {lost, t.Context(), func() error { lost.err = holdfast.ErrReleased; return nil }},
			"then its context ends":      {holdfast.Token(5), ctx, func() error { cancel(); return nil }},
			"then its context ends, too": {holdfast.Token(5), ctx, func() error { return context.Canceled }},
		} {
			if c.ctx.Err() != nil {
				ctx, cancel = context.WithCancel(t.Context())
				c.ctx = ctx
			}
			calls := 0
			err := g.Do(c.ctx, name, c.source, func(ctx context.Context, tx *sql.Tx) error {
				if calls++; calls > 1 {
					return nil
				}
				if err := d.write(name, 5, "committed")(ctx, tx); err != nil {
					t.Error(err)
				}
				return errors.Join(tx.Commit(), c.after())
			})
			if err == nil || calls != 1 {
				t.Fatalf("work that commits, %s: %d calls, %v", name, calls, err)
			}
			saysRolledBack := strings.Contains(err.Error(), "rolled back") && !errors.Is(err, sqlfence.ErrTxEnded)
			if saysRolledBack || strings.Contains(err.Error(), "nothing was written") {
				t.Errorf("work that commits, %s: %v", name, err)
			}
		}
		cancel()
	})
}

// The error of a function that has committed in SQL does not mean that nothing was written,
// and Retry must not write it again.
func TestWorkThatCommittedInSQLAndFailedIsNotReportedAsRolledBackNorRepeated(t *testing.T) {
	again := errors.New("again")
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, &sqlfence.Options{
			Retry:     retry(),
			Transient: func(err error) bool { return errors.Is(err, again) || sqlState(err) == "22012" },
		})
		after := map[string][]string{"commits": {"COMMIT"}}
		switch d.dialect {
		case sqlfence.Postgres:
			after["commits, and fails in another transaction"] = []string{"COMMIT", "BEGIN", "SELECT 1/0"}
			after["prepares a commit"] = []string{"PREPARE TRANSACTION 'prepared'"}
		case sqlfence.MySQL:
			after["runs DDL"] = []string{"CREATE TABLE more (id INT)"}
		}
		for name, queries := range after {
			calls := 0
			err := g.Do(deadline(t), name, holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				if calls++; calls > 1 {
					return nil
				}
				if err := d.write(name, 5, "committed")(ctx, tx); err != nil {
					t.Error(err)
				}
				for _, query := range queries {
					if _, err := tx.ExecContext(ctx, query); err != nil {
						return errors.Join(again, err)
					}
				}
				return again
			})
			if !errors.Is(err, sqlfence.ErrTxEnded) || !errors.Is(err, again) || calls != 1 {
				t.Errorf("work that %s, then fails: %d calls, %v", name, calls, err)
			}
			if name == "prepares a commit" {
				d.exec(t, "COMMIT PREPARED 'prepared'")
			}
			if works, _ := d.works(t, name); len(works) != 1 {
				t.Errorf("work that %s: works %v", name, works)
			}
		}
	})
}

// In InnoDB a deadlock rolls back the whole transaction. If fn ignores that and
// continues, each of its statements takes effect by itself, and the COMMIT succeeds.
func TestDeadlockThatTheWorkIgnoresIsNotTakenForDone(t *testing.T) {
	for _, k := range kinds[2:] {
		t.Run(k.name, func(t *testing.T) {
			d := newDatabase(t, k)
			d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 0), (2, 0), (3, 0)")
			g := d.guard(t, nil)
			other, err := d.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Rollback()
			// It changes more rows than the guarded one, so InnoDB rolls that one back.
			for _, query := range []string{
				"UPDATE accounts SET balance = 7 WHERE id = 2",
				"UPDATE accounts SET balance = 7 WHERE id = 3",
				"INSERT INTO accounts (id, balance) VALUES (11, 0), (12, 0), (13, 0), (14, 0), (15, 0)",
			} {
				if _, err := other.ExecContext(t.Context(), query); err != nil {
					t.Fatal(err)
				}
			}
			ended := make(chan error, 1)
			err = g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = 9 WHERE id = 1"); err != nil {
					return err
				}
				go func() { // joined by the receive
					_, err := other.ExecContext(t.Context(), "UPDATE accounts SET balance = 7 WHERE id = 1")
					ended <- errors.Join(err, other.Commit())
				}()
				d.waitForWaiters(t, 1)
				_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = 9 WHERE id = 2")
				if !isDeadlock(err) {
					t.Errorf("no deadlock: %v", err)
				}
				return nil
			})
			if !errors.Is(err, sqlfence.ErrTxEnded) {
				t.Errorf("Do: %v", err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if d.mark(t, "r") != 0 {
				t.Errorf("mark %v", d.mark(t, "r"))
			}
		})
	}
}

// lateCommit commits a transaction in its next Check, as a goroutine that the function has left behind could.
type lateCommit struct {
	*holder
	tx *sql.Tx
}

func (l *lateCommit) Check() error {
	if l.tx == nil {
		return nil
	}
	return l.tx.Commit()
}

func TestTransactionThatEndsRightBeforeItsCommitIsNotTakenForDone(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, &sqlfence.Options{Retry: retry()})
	l := &lateCommit{holder: &holder{token: 5}}
	err := g.Do(t.Context(), "r", l, func(ctx context.Context, tx *sql.Tx) error {
		l.tx = tx
		return d.write("r", 5, "")(ctx, tx)
	})
	if works, _ := d.works(t, "r"); !errors.Is(err, sqlfence.ErrTxEnded) || len(works) != 1 {
		t.Errorf("Do: %v, works %v", err, works)
	}
}
