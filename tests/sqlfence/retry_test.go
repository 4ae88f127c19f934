package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	marks "github.com/holdfast-go/holdfast/internal/retry"
)

func TestTransientFailureIsRepeatedOnlyWithRetry(t *testing.T) {
	mine := errors.New("mine")
	onEach(t, func(t *testing.T, d *database) {
		for _, c := range []struct {
			err   error
			retry *backoff.Policy
			calls int
		}{
			{gaveUp{}, nil, 1},
			{gaveUp{}, retry(), 3},
			{fmt.Errorf("wrapped: %w", mine), nil, 1},
			{fmt.Errorf("wrapped: %w", mine), retry(), 3},
			{errors.New("another"), retry(), 1},
			{marks.Again(errors.New("marked by the caller's code")), retry(), 1},
		} {
			transient := func(err error) bool { return errors.Is(err, mine) }
			g := d.guard(t, &sqlfence.Options{Retry: c.retry, Transient: transient})
			calls, resource := 0, fmt.Sprint(c.err, c.retry != nil)
			err := g.Do(t.Context(), resource, holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				calls++
				if err := d.write(resource, 5, fmt.Sprint(calls))(ctx, tx); err != nil {
					return err
				}
				if calls < 3 {
					return c.err
				}
				return nil
			})
			var want []string
			if c.calls == 3 {
				want = []string{"3"} // the earlier ones were rolled back
			} else if err == nil || err.Error() != c.err.Error() {
				t.Errorf("%v: Do: %v", resource, err)
			}
			if works, _ := d.works(t, resource); calls != c.calls || !slices.Equal(works, want) {
				t.Errorf("%s: %d calls, works %v", resource, calls, works)
			}
		}
	})
}

// coded is an error of the program with a number.
type coded int

func (coded) Error() string { return "of the program" }
func (c coded) Code() int   { return int(c) }

func TestNumberInAnErrorOfTheProgramIsNotTheDatabases(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, &sqlfence.Options{Retry: retry()})
	for _, code := range []coded{5, 6, 1029} {
		calls := 0
		err := g.Do(t.Context(), "r", holdfast.Token(5), func(context.Context, *sql.Tx) error {
			if calls++; calls > 1 {
				return nil
			}
			return code
		})
		if calls != 1 || !errors.Is(err, code) {
			t.Errorf("code %d: %d calls, %v", code, calls, err)
		}
	}
}

// With innodb_snapshot_isolation, the default from MariaDB 11.6 on, a statement fails with
// 1020 if its row has changed since the first read of the transaction.
func TestConflictWithTheSnapshotIsRepeated(t *testing.T) {
	for _, k := range kinds[2:] {
		t.Run(k.name, func(t *testing.T) {
			d := newDatabase(t, k)
			d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 0)")
			d.exec(t, "SET GLOBAL innodb_snapshot_isolation = ON")
			defer d.exec(t, "SET GLOBAL innodb_snapshot_isolation = OFF")
			db := d.pool(t, d.connector) // new sessions take the setting
			g := d.guardOver(t, db, &sqlfence.Options{Retry: retry()})
			calls := 0
			err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				calls++
				var balance int64
				err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 1").Scan(&balance)
				if err != nil {
					return err
				}
				if calls == 1 { // bypassing the guard
					d.exec(t, "UPDATE accounts SET balance = 7 WHERE id = 1")
				}
				_, err = tx.ExecContext(ctx, "UPDATE accounts SET balance = ? WHERE id = 1", balance+1)
				return err
			})
			balance := d.number(t, "SELECT balance FROM accounts WHERE id = 1")
			if err != nil || calls != 2 || balance != 8 {
				t.Errorf("%d calls, balance %d, %v", calls, balance, err)
			}
		})
	}
}

func TestHolderLostBetweenAttemptsIsRefused(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, &sqlfence.Options{Retry: retry()})
	h, lost := &holder{token: 5}, errors.New("lost")
	calls := 0
	err := g.Do(t.Context(), "r", h, func(context.Context, *sql.Tx) error {
		if calls++; calls > 1 {
			return errors.New("called again")
		}
		h.err = lost
		return gaveUp{}
	})
	if calls != 1 || !errors.Is(err, lost) {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestDeadlockOfTheWorkIsRepeated(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 0), (2, 0)")
		g := d.guard(t, &sqlfence.Options{Retry: retry()})
		var calls atomic.Int64
		var eachHasOne sync.WaitGroup
		eachHasOne.Add(2)
		one := func(resource string, ids ...int) error {
			return g.Do(t.Context(), resource, holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				n := calls.Add(1)
				for i, id := range ids {
					update := d.sql("UPDATE accounts SET balance = balance + 1 WHERE id = ?")
					if _, err := tx.ExecContext(ctx, update, id); err != nil {
						return err
					}
					if i == 0 && n <= 2 {
						eachHasOne.Done()
						eachHasOne.Wait()
					}
				}
				return nil
			})
		}
		var all sync.WaitGroup
		all.Go(func() {
			if err := one("a", 1, 2); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := one("b", 2, 1); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		if n := d.number(t, "SELECT SUM(balance) FROM accounts"); n != 4 || calls.Load() < 3 {
			t.Errorf("sum %d after %d calls", n, calls.Load())
		}
	})
}

// At these levels of PostgreSQL the second of two writers fails, because its snapshot is
// from before the commit of the first.
func TestSerializationFailureIsRepeatedOrReturned(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, policy := range []*backoff.Policy{nil, retry()} {
			d := newDatabase(t, kinds[1])
			g := d.guard(t, &sqlfence.Options{Isolation: level, Retry: policy})
			second := make(chan error, 1)
			err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				go func() { // joined by the receive
					second <- g.Do(t.Context(), "r", holdfast.Token(6), d.write("r", 6, "second"))
				}()
				d.waitForWaiters(t, 1)
				return d.write("r", 5, "first")(ctx, tx)
			})
			if err != nil {
				t.Error(err)
			}
			err = <-second
			works, _ := d.works(t, "r")
			if policy == nil && (sqlState(err) != "40001" || len(works) != 1) {
				t.Errorf("%v: %v, works %v", level, err, works)
			}
			if policy != nil && (err != nil || len(works) != 2) {
				t.Errorf("%v, with Retry: %v, works %v", level, err, works)
			}
		}
	}
}

// In InnoDB, a first write that rolls back passes its gap lock to all waiters, which then
// deadlock with each other. Retry handles that.
func TestFirstWritesThatFailDoNotHarmTheOthers(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, &sqlfence.Options{Retry: retry()})
		broken := errors.New("broken")
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
					if err := d.write("r", 5, fmt.Sprint(w))(ctx, tx); err != nil || w%2 == 0 {
						return err
					}
					return broken
				})
				if w%2 == 0 && err != nil || w%2 == 1 && err != broken {
					t.Errorf("writer %d: %v", w, err)
				}
			})
		}
		all.Wait()
		if works, _ := d.works(t, "r"); len(works) != writers/2 {
			t.Errorf("works %v", works)
		}
	})
}

// Without a busy timeout SQLite fails instead of waiting.
func TestBusySQLiteIsRepeated(t *testing.T) {
	d := newDatabase(t, kind{"SQLite", sqlfence.SQLite, openSQLite, ""})
	first := d.guard(t, nil)
	path := ""
	if err := d.db.QueryRow("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.NewConnector("file:" + filepath.ToSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	policy, busy := retry(), make(chan struct{})
	wasBusy := sync.OnceFunc(func() { close(busy) })
	policy.Rand = func() float64 { wasBusy(); return 0 }
	second := d.guardOver(t, d.pool(t, c), &sqlfence.Options{Retry: policy})
	impatient := d.guardOver(t, d.pool(t, c), nil)
	done := make(chan error, 1)
	err = first.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
		if err := impatient.Do(t.Context(), "s", holdfast.Token(6), neverCalled(t)); err == nil {
			t.Error("two writers at once")
		}
		go func() { // joined by the receive
			done <- second.Do(t.Context(), "r", holdfast.Token(6), d.write("r", 6, "second"))
		}()
		select {
		case <-busy:
		case err := <-done: // too early; the check below fails
			done <- err
		}
		return d.write("r", 5, "first")(ctx, tx)
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Error(err)
	}
	if works, _ := d.works(t, "r"); !slices.Equal(works, []string{"first", "second"}) {
		t.Errorf("works %v", works)
	}
}

// A Galera node can give up a transaction without an error, and its savepoint with it. What follows is in another one.
func TestTransactionThatIsGivenUpUnaskedDuringTheRaiseIsRepeated(t *testing.T) {
	d := newDatabase(t, kinds[2])
	raises, releases := 0, 0
	g := d.guardOver(t, d.pool(t, &lossy{Connector: d.connector,
		exec: func(query string, real func() (driver.Result, error)) (driver.Result, error) {
			switch {
			case strings.Contains(query, "ON DUPLICATE KEY UPDATE"):
				if raises++; raises == 1 {
					return driver.RowsAffected(1), nil // it takes effect in no transaction
				}
			case strings.HasPrefix(query, "RELEASE"):
				if releases++; releases == 1 {
					return nil, &mysql.MySQLError{Number: 1305, Message: "SAVEPOINT does not exist"}
				}
			}
			return real()
		}}), &sqlfence.Options{Retry: retry()})
	err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "once"))
	if works, _ := d.works(t, "r"); err != nil || raises != 2 || !slices.Equal(works, []string{"once"}) {
		t.Errorf("%d raises, %v, works %v", raises, err, works)
	}
}

// Galera reports a conflict of two nodes at any statement.
func TestTransientErrorOfTheGuardsOwnStatementsIsRepeated(t *testing.T) {
	d := newDatabase(t, kinds[0])
	for _, statement := range []string{"SAVEPOINT", "RELEASE"} {
		failures := 0
		g := d.guardOver(t, d.pool(t, &lossy{Connector: d.connector,
			exec: func(query string, real func() (driver.Result, error)) (driver.Result, error) {
				if failures == 0 && strings.HasPrefix(query, statement) {
					failures++
					return nil, gaveUp{}
				}
				return real()
			}}), &sqlfence.Options{Retry: retry()})
		err := g.Do(t.Context(), statement, holdfast.Token(5), d.write(statement, 5, "once"))
		if works, _ := d.works(t, statement); err != nil || failures != 1 || !slices.Equal(works, []string{"once"}) {
			t.Errorf("%s: %d failures, %v, works %v", statement, failures, err, works)
		}
	}
}
