// Package sqlfence guards writes to a SQL database: once a newer holder of a lock has
// written to a resource, older holders no longer can.
//
//	g, err := sqlfence.New(db, sqlfence.Postgres, nil)
//	...
//	err = mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		return g.Do(ctx, "accounts/7", lk, func(ctx context.Context, tx *sql.Tx) error {
//			var balance int64 // read here, not before Do
//			err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance)
//			if err != nil {
//				return err
//			}
//			_, err = tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", next(balance))
//			return err
//		})
//	})
//
// The database keeps a mark per resource: the largest fencing token that has written
// to it. A [Guard] compares the token, raises the mark and writes in one transaction.
//
// # Which form
//
//   - [Guard.Do] runs any number of statements in a transaction. It needs a table of
//     marks, from [Guard.EnsureSchema] or [Migrations].
//   - [Guard.DoClaim] and [Guard.Store] do the same in a service whose clients hold the
//     lock and send name and token.
//   - [Marks.Raise] is for transactions of your own: database/sql, an ORM or pgx.
//   - [Column] keeps the token in a column of your own table, for work that is one
//     UPDATE of one row.
//
// # Guarantees
//
//   - Writes to one resource commit in the order of their tokens.
//   - What is refused with fencing.ErrStale has written nothing. Without a token
//     nothing is written.
//   - Writers of one resource wait for each other from their first statement on. Those
//     of different resources do not, except in SQLite, which has one writer per file.
//   - The guarded function sees what the previous guarded writer has committed.
//
// # Not guaranteed
//
//   - Anything about writes that bypass the guard, or use another resource name for the
//     same rows. The database does not know which rows a resource stands for.
//   - That a stale holder is refused before a newer one has written: writing raises the
//     mark. Until then it overwrites nothing that is newer.
//   - That a value read before the transaction is still current in it. Read in it, or
//     raise the mark with an empty transaction right after acquiring the lock.
//   - That a paused process releases its row. Its transaction stays open, and the next
//     holder waits, until the database ends it. Set the database's limit for idle
//     transactions, and a deadline on the context of those that wait.
//   - The outcome of a write with holdfast.ErrOutcomeUnknown. Read it in a new guarded
//     transaction.
//   - Anything about effects of the function outside its transaction: other
//     connections, other systems, MySQL tables that are not InnoDB.
//   - The marks of a replica that is promoted without the latest writes, or of a
//     database restored from a backup: they are as old as the data. Let holders acquire
//     again before they write.
//
// docs/fencing-sql.md says how to choose, and what each database does.
package sqlfence
