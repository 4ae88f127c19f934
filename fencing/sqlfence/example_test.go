package sqlfence_test

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
)

// A lock around the work, and the guard around what it writes.
func Example() {
	var (
		ctx context.Context
		db  *sql.DB
		mu  *locker.Mutex
	)
	transfer := func() error {
		g, err := sqlfence.New(db, sqlfence.Postgres, sqlfence.Options{})
		if err != nil {
			return err
		}
		if err := g.EnsureSchema(ctx); err != nil {
			return err
		}
		return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
			return g.Do(ctx, "accounts/7", lk, func(ctx context.Context, tx *sql.Tx) error {
				var balance int64 // read here, not before Do
				err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", balance-10)
				return err
			})
		})
	}
	_ = transfer // needs a database
}
