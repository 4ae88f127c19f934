package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
)

func ExampleGuard_Do() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection to ":memory:" is a separate database

	ctx := context.Background()
	g, err := sqlfence.New(db, sqlfence.SQLite, sqlfence.Options{
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
	// Tokens of two holders. Pass the lock itself if you have it: a bare token does not
	// name its lock.
	for _, token := range []holdfast.Token{33, 33, 34, 33} {
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

// The guard in a transaction of pgx.
func ExampleMarks_Raise() {
	marks, err := sqlfence.NewMarks(sqlfence.Postgres, sqlfence.Options{})
	if err != nil {
		log.Fatal(err)
	}
	transfer := func(ctx context.Context, pool *pgxpool.Pool, lk *locker.Lock) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := marks.Raise(ctx, sqlfence.PgxTx(tx), "accounts/7", lk); err != nil {
				return err
			}
			var balance int64
			err := tx.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", balance-10)
			if err != nil {
				return err
			}
			return lk.Check()
		})
	}
	_ = transfer // needs a database
}
