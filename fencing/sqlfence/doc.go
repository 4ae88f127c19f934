// Package sqlfence guards what is written to a SQL database: a holder that has
// lost its lock, and does not know it yet, cannot write any more once a later
// holder has.
//
//	g, err := sqlfence.New(db, sqlfence.Postgres, nil)
//	...
//	err = mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		return g.Do(ctx, "accounts/7", lk, func(ctx context.Context, tx *sql.Tx) error {
//			var balance int64 // read here, not before: another may have written since
//			if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance); err != nil {
//				return err
//			}
//			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", next(balance))
//			return err
//		})
//	})
//
// The database keeps a mark for each resource: the largest fencing token that
// has written to it. A [Guard] compares, raises and writes in one transaction.
//
// # Which form
//
//   - [Guard.Do]: a table of marks, made by [Guard.EnsureSchema] or
//     [Migrations], for work of any number of statements.
//   - [Guard.DoClaim] and [Guard.Store]: the same in a service whose clients
//     hold the lock and present name and token.
//   - [Marks.Raise]: the guard inside a transaction of your own, of database/sql,
//     an ORM or pgx.
//   - [Column]: the token in a column of your own table, for work that is one
//     UPDATE of one row.
//
// # Guarantees
//
//   - What is committed through a guard to one resource is committed in the
//     order of the tokens: never one with a smaller token after one with a
//     larger.
//   - What is refused with fencing.ErrStale has written nothing.
//   - No token, no write.
//   - Writers of one resource wait for each other, from the first write on;
//     those of different resources do not (but for SQLite, where all writers do).
//   - The guarded work sees what the previous writer of the resource has
//     committed, as far as that went through the guard.
//
// # Not guaranteed
//
//   - Anything about writes that do not go through a guard, or that use another
//     name for what they write. The resource is a name that writers agree on; the
//     database does not know which rows it stands for.
//   - That a stale holder is refused before a later one has written: the mark is
//     raised by writing. Until then nobody's work is overwritten.
//   - That a value which was read before the guarded transaction is still true in
//     it. Read in it, or raise the mark first, with a guarded transaction right
//     after the acquisition.
//   - Anything about a copy that is promoted without the newest writes: it lacks
//     their marks as well. The guide has a table of topologies.
//   - That a paused process lets go of its row. One that stands still within fn
//     keeps its transaction open, and the next holder waits for it until the
//     database ends it. Give the database a limit for idle transactions (the
//     guide has each one's), and the waiting side a context that ends.
//   - That a transaction with ErrOutcomeUnknown had an effect, or had none. Read
//     back, in a guarded transaction of your own.
//   - The effects of fn outside of its transaction: other connections, other
//     systems, and with MySQL tables that are not InnoDB.
//   - The right answer after the database was restored from a backup: its marks
//     are then as old as the backup. Let holders acquire again before they write.
//
// The guide in docs/fencing-sql.md says how to choose, what each database does
// behind this, and what it costs.
package sqlfence
