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

// account is a row with a fencing column.
type account struct {
	d   *database
	col *sqlfence.Column
	id  int
}

func newAccount(t *testing.T, d *database, id int, fence any) *account {
	t.Helper()
	d.exec(t, "INSERT INTO accounts (id, balance, fence) VALUES (?, 0, ?)", id, fence)
	col, err := sqlfence.NewColumn(d.dialect, "fence")
	if err != nil {
		t.Fatal(err)
	}
	return &account{d, col, id}
}

// execer is a database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (a *account) set(ctx context.Context, db execer, balance int, token holdfast.Token) error {
	var res sql.Result
	var err error
	if a.d.dialect == sqlfence.Postgres {
		query := "UPDATE accounts SET balance = $1, " + a.col.Set("$2") + " WHERE id = $3 AND " + a.col.Where("$2")
		res, err = db.ExecContext(ctx, query, balance, int64(token), a.id)
	} else {
		query := "UPDATE accounts SET balance = ?, " + a.col.Set("?") + " WHERE id = ? AND " + a.col.Where("?")
		res, err = db.ExecContext(ctx, query, balance, int64(token), a.id, int64(token))
	}
	if err != nil {
		return err
	}
	return a.col.Stale(res, "account", token)
}

func TestColumnAdmitsLargerAndEqualTokensOnly(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		for id, fence := range []any{0, nil, 4} { // NULL: never held
			a := newAccount(t, d, id, fence)
			for i, step := range []struct {
				balance int
				token   holdfast.Token
				want    error
			}{
				{10, 0, holdfast.ErrNoToken},
				{10, -1, holdfast.ErrNoToken},
				{11, 5, nil},
				{11, 5, nil}, // the same values: MySQL changes no row
				{12, 5, nil},
				{13, 4, fencing.ErrStale},
				{12, 4, fencing.ErrStale},
				{14, 1<<62 + 1, nil},
				{15, 1 << 62, fencing.ErrStale},
				{14, 1<<62 + 1, nil},
			} {
				before := d.number(t, "SELECT balance FROM accounts WHERE id = ?", id)
				err := a.set(t.Context(), d.db, step.balance, step.token)
				if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
					t.Errorf("row with %v, step %d: %v, want %v", fence, i, err, step.want)
				}
				if errors.Is(err, fencing.ErrStale) && !strings.Contains(err.Error(), "token "+step.token.String()) {
					t.Errorf("step %d: %v", i, err)
				}
				if err != nil {
					step.balance = int(before)
				}
				if got := d.number(t, "SELECT balance FROM accounts WHERE id = ?", id); got != int64(step.balance) {
					t.Errorf("row with %v, step %d: balance %d, want %d", fence, i, got, step.balance)
				}
			}
		}
	})
}

// A trigger's own insert takes the place of the column's in the reply of MySQL. Only if the driver counts the rows that
// matched can an UPDATE that changes nothing be told from a stale one.
func TestColumnBesideATriggerThatInsertsNeedsFoundRows(t *testing.T) {
	for _, k := range kinds[2:] {
		t.Run(k.name, func(t *testing.T) {
			d := newDatabase(t, k)
			d.exec(t, "CREATE TRIGGER told BEFORE UPDATE ON accounts FOR EACH ROW "+
				"INSERT INTO history (resource, token, work) VALUES ('account', NEW.fence, '')")
			a := newAccount(t, d, 1, 0)
			for i, step := range []struct {
				balance int
				token   holdfast.Token
				stale   bool
			}{
				{10, 5, false},
				{10, 5, k.name == "MariaDB"}, // the same values
				{11, 5, false},
				{12, 4, true},
			} {
				err := a.set(t.Context(), d.db, step.balance, step.token)
				if errors.Is(err, fencing.ErrStale) != step.stale || (err != nil) != step.stale ||
					step.stale && !strings.Contains(err.Error(), "clientFoundRows") {
					t.Errorf("step %d: %v", i, err)
				}
			}
		})
	}
}

func TestColumnOfAMissingRowIsStale(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		a := newAccount(t, d, 1, 0)
		// A LAST_INSERT_ID from an earlier statement of the connection must not be
		// taken for that of a matched row.
		d.db.SetMaxOpenConns(1)
		if err := a.set(t.Context(), d.db, 1, 5); err != nil {
			t.Fatal(err)
		}
		a.id = 2
		if err := a.set(t.Context(), d.db, 1, 5); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("no such row: %v", err)
		}
	})
}

func TestNoStaleWriteEverLandsThroughAColumn(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		accounts := map[string]*account{"a": newAccount(t, d, 1, 0), "b": newAccount(t, d, 2, nil)}
		writeBoth := func(ctx context.Context, resource string, token holdfast.Token, work string) error {
			tx, err := d.db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := accounts[resource].set(ctx, tx, len(work), token); err != nil {
				return err
			}
			if err := d.write(resource, token, work)(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		}
		newContest(d, "a", "b").run(t, 20, writeBoth)
	})
}
