// Package sqlfence guards writes to a SQL database: once a newer holder of a lock has written to a
// resource, older holders no longer can. The database keeps a mark per resource: the largest fencing
// token that has written to it.
//
//	g, err := sqlfence.New(db, sqlfence.Postgres, sqlfence.Options{})
//	...
//	err = mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		return g.Do(ctx, "accounts/7", lk, func(ctx context.Context, tx *sql.Tx) error {
//			... // read here, not before Do
//			_, err = tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", next(balance))
//			return err
//		})
//	})
//
// [Guard.Do] needs a table of marks, from [Guard.EnsureSchema] or [Migrations]. [Guard.DoClaim] and
// [Guard.Store] are for clients that send name and token, [Marks.Raise] for transactions of your own,
// [Column] for one UPDATE of one row. docs/fencing-sql.md says how to choose, and what each database
// does.
//
// # Guarantees
//
//   - Writes to one resource commit in the order of their tokens, and what is refused with
//     fencing.ErrStale has written nothing.
//   - Writers of one resource wait for each other from their first statement on, and see what the
//     previous one has committed. Writers of different resources wait only in SQLite, which has one
//     writer per file, and in MySQL the first writers of resources during [Guard.Expire].
//
// # Not guaranteed
//
//   - Anything about writes that bypass the guard or use another resource name for the same rows, or
//     about effects outside the transaction (MySQL tables that are not InnoDB included).
//   - That a stale holder is refused before a newer one has written.
//   - That a value read before the transaction is still current in it.
//   - That a paused process releases its row: the next holder waits until the database ends the
//     transaction. Set its limit for idle transactions, and a deadline for those that wait.
//   - The marks of a replica that was promoted without the latest writes, or of a restored database:
//     let holders acquire again first.
package sqlfence
