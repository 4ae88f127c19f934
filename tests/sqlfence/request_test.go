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

// The mark must not be undone while the work after it is committed.
func TestWorkCannotRollBackToBeforeTheRaise(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		err := g.Do(t.Context(), "r", holdfast.Token(7), func(ctx context.Context, tx *sql.Tx) error {
			if d.dialect != sqlfence.Postgres { // where an error would fail the transaction
				if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT holdfast_guard"); err == nil {
					t.Error("a savepoint of the guard can be guessed")
				}
			}
			return d.write("r", 7, "newer")(ctx, tx)
		})
		if err != nil || d.mark(t, "r") != 7 {
			t.Errorf("Do: %v, mark %v", err, d.mark(t, "r"))
		}
	})
}

// Something in the database drops the raise and reports no error. No repetition changes that.
func TestRaiseThatTheDatabaseDropsIsNotRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, &sqlfence.Options{Retry: retry()})
		if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "")); err != nil {
			t.Fatal(err)
		}
		switch d.dialect {
		case sqlfence.Postgres:
			d.exec(t, "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
			d.exec(t, "CREATE TRIGGER dropped BEFORE UPDATE ON holdfast_fence FOR EACH ROW EXECUTE PROCEDURE nothing()")
		case sqlfence.MySQL:
			d.exec(t, "CREATE TRIGGER dropped BEFORE UPDATE ON holdfast_fence FOR EACH ROW SET NEW.token = OLD.token")
		case sqlfence.SQLite:
			d.exec(t, "CREATE TRIGGER dropped BEFORE UPDATE ON holdfast_fence BEGIN SELECT RAISE(IGNORE); END")
		}
		err := g.Do(deadline(t), "r", holdfast.Token(7), neverCalled(t))
		if err == nil || errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fencing.ErrNotDone) ||
			!strings.Contains(err.Error(), "trigger") {
			t.Errorf("Do: %v", err)
		}
		// The same, of a second resource within the work.
		err = g.Do(deadline(t), "s", holdfast.Token(7), func(ctx context.Context, tx *sql.Tx) error {
			return d.marks(quiet).Raise(ctx, sqlfence.SQLTx(tx), "r", holdfast.Token(7))
		})
		if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "trigger") {
			t.Errorf("Raise in Do: %v", err)
		}
	})
}

func TestFailureOfARaiseIsNotBlamedOnTheSchema(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	for _, statement := range []string{
		"CREATE TRIGGER refused BEFORE INSERT ON holdfast_fence BEGIN SELECT RAISE(ABORT, 'refused'); END",
		"DROP TABLE holdfast_fence",
	} {
		d.exec(t, statement)
		err := g.Do(t.Context(), "r", holdfast.Token(5), neverCalled(t))
		if _, ok := errors.AsType[*sqlfence.SchemaError](err); ok || !errors.Is(err, fencing.ErrNotDone) {
			t.Errorf("after %s: %v", statement, err)
		}
	}
}
