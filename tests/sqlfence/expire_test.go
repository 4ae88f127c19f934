package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestExpiredMarkLetsNoStaleTokenIn(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		refused := 0
		count := audit.Func(func(context.Context, audit.Record) { refused++ })
		g := d.guard(t, &sqlfence.Options{Auditor: count})
		do := func(resource string, token holdfast.Token) error {
			return g.Do(t.Context(), resource, token, d.write(resource, token, ""))
		}
		for resource, token := range map[string]holdfast.Token{
			"job 1": 5, "job 2": 7, "busy": 6, "above": 30, "no raised_at": 4,
		} {
			if err := do(resource, token); err != nil {
				t.Fatal(err)
			}
		}
		d.exec(t, "UPDATE holdfast_fence SET raised_at = raised_at - 7200 WHERE resource <> ?", d.resource("busy"))
		d.exec(t, "UPDATE holdfast_fence SET raised_at = 0 WHERE resource = ?", d.resource("no raised_at"))
		for _, c := range []struct {
			idle time.Duration
			n    int64
		}{{3 * time.Hour, 0}, {time.Hour, 2}} {
			if n, err := g.Expire(t.Context(), holdfast.Token(20), c.idle); err != nil || n != c.n {
				t.Errorf("%d marks were deleted, %v; want %d", n, err, c.n)
			}
		}
		for resource, want := range map[string]holdfast.Token{
			"job 1": 0, "job 2": 0, "busy": 6, "above": 30, "no raised_at": 4,
		} {
			if got := d.mark(t, resource); got != want {
				t.Errorf("%s: mark %v, want %v", resource, got, want)
			}
		}
		for range 2 {
			err := do("job 2", 6)
			below, ok := errors.AsType[*fencing.MarkError](err)
			if !ok || !errors.Is(err, fencing.ErrStale) || !errors.Is(err, sqlfence.ErrExpired) || below.Mark != 8 ||
				!strings.Contains(err.Error(), "raise the epoch to 1 or more") {
				t.Errorf("a stale token: %v", err)
			}
		}
		for _, c := range []struct {
			resource string
			token    holdfast.Token
		}{{"job 2", 8}, {"never seen", 20}, {"busy", 6}} {
			if err := do(c.resource, c.token); err != nil {
				t.Errorf("%s: %v", c.resource, err)
			}
		}
		// A caller that commits in spite of the refusal.
		tx, err := d.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = d.marks(count).Raise(t.Context(), sqlfence.SQLTx(tx), "job 1", holdfast.Token(4))
		if !errors.Is(err, sqlfence.ErrExpired) {
			t.Errorf("Raise: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := do("job 1", 4); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("after the commit: %v", err)
		}
		if refused != 4 {
			t.Errorf("%d refusals are recorded, want 4", refused)
		}
	})
}

// MySQL refuses to write at READ COMMITTED if its log of changes has statements. At the default level a search of the
// table would lock all of it.
func TestMarksExpireWithALogOfStatementsAndBesideWriters(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		const resources = 5
		for i := range resources {
			if err := g.Do(t.Context(), fmt.Sprint(i), holdfast.Token(5), d.write("r", 5, "")); err != nil {
				t.Fatal(err)
			}
		}
		d.exec(t, "UPDATE holdfast_fence SET raised_at = 1000 WHERE resource IN (?, ?)", d.resource("0"), d.resource("4"))
		d.exec(t, "UPDATE holdfast_fence SET raised_at = 0 WHERE resource = ?", d.resource("3"))
		expiring := d.db
		if d.dialect == sqlfence.MySQL {
			expiring = d.pool(t, mariadb.connectorWith(t, d.id, map[string]string{"binlog_format": "'STATEMENT'"}))
		}
		err := g.Do(t.Context(), "2", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
			if err := d.write("r", 5, "")(ctx, tx); err != nil {
				return err
			}
			n, err := d.guardOver(t, expiring, nil).Expire(deadline(t), holdfast.Token(20), time.Hour)
			if err != nil || n != 2 {
				t.Errorf("%d marks expired while another resource is written, %v; want 2", n, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The first floor of a table comes between the snapshot of a transaction and its raise.
func TestFirstFloorIsNotMissedByAnOlderSnapshot(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		d.exec(t, "INSERT INTO holdfast_fence (resource, lock_name, token, raised_at) VALUES (?, ?, 7, 1000)",
			d.resource("r"), d.resource(""))
		tx, err := d.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM holdfast_fence").Scan(&n); err != nil || n != 1 {
			t.Fatalf("%d rows, %v", n, err)
		}
		if n, err := g.Expire(t.Context(), holdfast.Token(20), time.Hour); n != 1 || err != nil {
			t.Fatalf("%d marks expired, %v", n, err)
		}
		err = d.marks(quiet).Raise(t.Context(), sqlfence.SQLTx(tx), "r", holdfast.Token(5))
		if !errors.Is(err, sqlfence.ErrExpired) && sqlState(err) != "40001" {
			t.Errorf("a token below the floor: %v", err)
		}
	})
}

func TestAllIdleMarksExpire(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	n, err := g.Expire(t.Context(), holdfast.Token(5), time.Hour)
	if rows := d.number(t, "SELECT COUNT(*) FROM holdfast_fence"); n != 0 || err != nil || rows != 0 {
		t.Errorf("of no marks %d expired, %v, and now there are %d rows", n, err, rows)
	}
	const marks = 2500
	d.exec(t, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "+
		"INSERT INTO holdfast_fence (resource, lock_name, token, raised_at) SELECT 'job ' || i, '', i, 1000 FROM n", marks)
	n, err = g.Expire(t.Context(), holdfast.Token(marks+1), time.Hour)
	left := d.number(t, "SELECT COUNT(*) FROM holdfast_fence WHERE resource <> ''")
	if err != nil || n != marks || left != 0 {
		t.Errorf("%d of %d marks expired, %d are left, %v", n, marks, left, err)
	}
	if err := g.Do(t.Context(), "job 1", holdfast.Token(marks), neverCalled(t)); !errors.Is(err, sqlfence.ErrExpired) {
		t.Errorf("the largest expired token: %v", err)
	}
}

// Marks expire all the time while writers with present and stale tokens compete.
func TestNoStaleWriteLandsWhileMarksExpire(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, &sqlfence.Options{Retry: retry()})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		deleted := make(chan int64, 1)
		go func() { // ends with ctx; joined by the receive
			all := int64(0)
			for ctx.Err() == nil {
				// Either may lose a deadlock against a writer.
				_, _ = d.db.ExecContext(ctx, "UPDATE holdfast_fence SET raised_at = 1000 WHERE resource <> ''")
				n, err := g.Expire(ctx, holdfast.Token(1<<40), time.Hour)
				if err != nil && ctx.Err() == nil && !isDeadlock(err) {
					t.Error(err)
				}
				all += n
			}
			deleted <- all
		}()
		c := newContest(d, "a", "b", "c")
		c.expire = true
		c.run(t, 30, func(
			ctx context.Context, resource string, token holdfast.Token, work string,
		) error {
			return g.Do(ctx, resource, token, d.write(resource, token, work))
		})
		stop()
		t.Logf("%d marks expired", <-deleted)
	})
}

func TestExpireEndsAlthoughTheDatabaseKeepsTheMarks(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	d.exec(t, "INSERT INTO holdfast_fence (resource, lock_name, token, raised_at) VALUES ('r', '', 7, 1000)")
	d.exec(t, "CREATE TRIGGER kept BEFORE DELETE ON holdfast_fence BEGIN SELECT RAISE(IGNORE); END")
	if n, err := g.Expire(deadline(t), holdfast.Token(20), time.Hour); n != 0 || err != nil || d.mark(t, "r") != 7 {
		t.Errorf("%d marks expired, %v; mark %v", n, err, d.mark(t, "r"))
	}
}

// With a snapshot PostgreSQL would fail to delete it.
// In SQLite a column may hold what is not of its type. Such a mark would be taken for that of token 0.
func TestExpireTellsAMarkThatIsNoNumber(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	d.exec(t, "INSERT INTO holdfast_fence (resource, lock_name, token) VALUES ('r', '', 'seven')")
	if n, err := g.Expire(deadline(t), holdfast.Token(20), time.Hour); n != 0 || err == nil {
		t.Errorf("%d marks expired, %v", n, err)
	}
}

func TestMarkThatIsRaisedWhileItExpiresStays(t *testing.T) {
	d := newDatabase(t, kinds[1])
	g := d.guard(t, nil)
	if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "")); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "UPDATE holdfast_fence SET raised_at = 1000 WHERE resource = 'r'")
	dsn := postgresDSN(d.id) + " default_transaction_isolation='repeatable read'"
	c, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	expiring := d.guardOver(t, d.pool(t, c), nil)
	type result struct {
		n   int64
		err error
	}
	expired := make(chan result, 1)
	err = g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
		go func() { // joined by the receive
			n, err := expiring.Expire(deadline(t), holdfast.Token(20), time.Hour)
			expired <- result{n, err}
		}()
		d.waitForWaiters(t, 1)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if r := <-expired; r.n != 0 || r.err != nil || d.mark(t, "r") != 5 {
		t.Errorf("%d marks expired, %v; mark %v", r.n, r.err, d.mark(t, "r"))
	}
}
