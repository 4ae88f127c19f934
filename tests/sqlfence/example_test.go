package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
)

// The usual form: a lock around the work, the guard around what it writes.
func Example() {
	var (
		ctx context.Context
		db  *sql.DB
		mu  *locker.Mutex
	)
	use := func() error {
		g, err := sqlfence.New(db, sqlfence.Postgres, nil)
		if err != nil {
			return err
		}
		if err := g.EnsureSchema(ctx); err != nil {
			return err
		}
		return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
			return g.Do(ctx, "accounts/7", lk, func(ctx context.Context, tx *sql.Tx) error {
				var balance int64 // read here, not before: another may have written since
				if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", balance-10)
				return err
			})
		})
	}
	_ = use
}

func ExampleGuard_Do() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection of ":memory:" is a database of its own

	ctx := context.Background()
	g, err := sqlfence.New(db, sqlfence.SQLite, &sqlfence.Options{
		Auditor: audit.Func(func(_ context.Context, r audit.Record) {
			fmt.Printf("audit: %s token %v of %s, mark %v\n", r.Event, r.Token, r.Resource, r.Mark)
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := g.EnsureSchema(ctx); err != nil {
		log.Fatal(err)
	}
	// From two holders. Present the lock itself where it is at hand: a bare token
	// cannot say which lock it is of.
	for _, token := range []fencing.Token{33, 33, 34, 33} {
		err := g.Do(ctx, "accounts/7", token, func(ctx context.Context, tx *sql.Tx) error {
			return nil // the work
		})
		fmt.Println(token, "stale:", errors.Is(err, fencing.ErrStale))
	}
	// Output:
	// 33 stale: false
	// 33 stale: false
	// 34 stale: false
	// audit: refused token 33 of accounts/7, mark 34
	// 33 stale: true
}

// The guard inside a transaction of pgx.
func ExampleMarks_Raise() {
	marks, err := sqlfence.NewMarks(sqlfence.Postgres, nil)
	if err != nil {
		log.Fatal(err)
	}
	use := func(ctx context.Context, pool *pgxpool.Pool, lk *locker.Lock) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := marks.Raise(ctx, sqlfence.PgxTx(tx), "accounts/7", lk); err != nil {
				return err
			}
			var balance int64
			if err := tx.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", balance-10); err != nil {
				return err
			}
			return lk.Check()
		})
	}
	_ = use
}

func ExampleColumn() {
	col, err := sqlfence.NewColumn(sqlfence.Postgres, "fence")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("UPDATE accounts SET balance = $1, " + col.Set("$2") + " WHERE id = $3 AND " + col.Where("$2"))

	col, err = sqlfence.NewColumn(sqlfence.MySQL, "fence")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("UPDATE accounts SET balance = ?, " + col.Set("?") + " WHERE id = ? AND " + col.Where("?"))
	// Output:
	// UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND COALESCE(NULLIF(fence, 0), 1) <= $2
	// UPDATE accounts SET balance = ?, fence = LAST_INSERT_ID(?) WHERE id = ? AND COALESCE(NULLIF(fence, 0), 1) <= ?
}
