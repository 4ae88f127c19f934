package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Expire deletes marks that were not raised for idle, by the database's clock, and returns how many.
// Run it under a lock, and pass that lock as the source.
//
// The largest deleted mark becomes the floor of the table: resources without a mark refuse tokens up
// to it with [ErrExpired]. So idle should be longer than any lock is held without a write. Only marks
// below source's token are deleted; for that, all locks of the table must be in one etcd and
// namespace. Each mark is deleted by its key, in transactions of up to 1,000, and each of these waits
// for writers of its resources only. Before each of them Expire waits for all transactions in which a
// resource gets its first mark, to raise the floor; in MySQL such transactions that begin then wait behind it.
//
// Errors: *holdfast.ArgumentError (idle is not positive), holdfast.ErrNoToken, the error of source's
// Check, or that of the database; then marks may have been deleted.
func (g *Guard) Expire(ctx context.Context, source fencing.Source, idle time.Duration) (deleted int64, err error) {
	if ctx == nil {
		return 0, errNilContext
	}
	if idle <= 0 {
		return 0, &holdfast.ArgumentError{Argument: "idle", Reason: fmt.Sprintf("is %v, not positive", idle)}
	}
	c := &claimant{m: &g.m, source: source}
	if err := c.check(); err != nil {
		return 0, fmt.Errorf("sqlfence: no marks were expired: %w", err)
	}
	if deleted, err = g.expire(ctx, c.claim.Token, max(1, int64(idle/time.Second))); err != nil {
		return deleted, fmt.Errorf("sqlfence: expire marks: %w", withContext(ctx, err))
	}
	return deleted, nil
}

func (g *Guard) expire(ctx context.Context, token holdfast.Token, idle int64) (deleted int64, err error) {
	d, table := g.m.dialect, g.m.table
	// Rows from before the column existed become idle from now on.
	const unknown = "raised_at = 0"
	touch := d.statement("UPDATE " + table + " SET raised_at = " + d.now() + " WHERE resource = {resource} AND " + unknown)
	if _, err := g.changeMarks(ctx, unknown, touch, nil); err != nil {
		return 0, err
	}
	// Placeholders differ by dialect; these are numbers, made in this function. A row that was
	// raised in the meantime stays.
	isIdle := fmt.Sprintf("raised_at > 0 AND raised_at < %s - %d", d.now(), idle)
	remove := d.statement("DELETE FROM " + table + " WHERE resource = {resource} AND token = {token} AND " + isIdle)
	// The floor is committed before the marks are gone. Writers, which lock their own row and then
	// the floor, never wait for one that waits for them.
	return g.changeMarks(ctx, fmt.Sprintf("token < %d AND %s", token, isIdle), remove, func(largest holdfast.Token) error {
		values := &arguments{argToken: int64(largest) + 1}
		raise := &g.m.sql.raiseFloor
		return g.inTx(ctx, g.readCommitted(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, raise.query, raise.bind(values)...)
			return err
		})
	})
}

// marksInTx is how many marks one transaction of Expire changes.
const marksInTx = 1000

// changeMarks runs change for each mark that meets a condition, until there is none, and returns how
// many rows it has changed. Before the first change of a transaction it calls before, if that is not
// nil, with the largest mark. change names a mark by its key: a statement that searches the table
// would, in InnoDB, lock each row that it looks at, and the gaps between them.
func (g *Guard) changeMarks(
	ctx context.Context, where string, change statement, before func(largest holdfast.Token) error,
) (changed int64, err error) {
	query := fmt.Sprintf("SELECT resource, token FROM %s WHERE resource <> '' AND %s LIMIT %d",
		g.m.table, where, marksInTx)
	for {
		marks, err := g.marks(ctx, query)
		if err != nil || len(marks) == 0 {
			return changed, err
		}
		var largest holdfast.Token
		for _, mark := range marks {
			largest = max(largest, mark.claim.Token)
		}
		if before != nil {
			if err := before(largest); err != nil {
				return changed, err
			}
		}
		n := int64(0)
		err = g.inTx(ctx, g.readCommitted(), func(tx *sql.Tx) error {
			for _, mark := range marks {
				res, err := tx.ExecContext(ctx, change.query, change.bind(mark.arguments())...)
				if err != nil {
					return err
				}
				rows, err := res.RowsAffected()
				if err != nil {
					return err
				}
				n += rows
			}
			return nil
		})
		if err != nil {
			return changed, err
		}
		if changed += n; n == 0 {
			return changed, nil // all were raised in the meantime
		}
	}
}

// marks returns the committed marks that a query finds.
func (g *Guard) marks(ctx context.Context, query string) (marks []claimant, err error) {
	err = g.inTx(ctx, nil, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			mark := claimant{m: &g.m}
			if err := rows.Scan(&mark.resource, (*int64)(&mark.claim.Token)); err != nil {
				return err
			}
			marks = append(marks, mark)
		}
		return rows.Err()
	})
	return marks, err
}

// readCommitted lets PostgreSQL wait for a writer of a row where a snapshot would make it fail. The
// others need no level: MySQL writes nothing at this one if binlog_format is STATEMENT.
func (g *Guard) readCommitted() *sql.TxOptions {
	if g.m.dialect == Postgres {
		return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	return nil
}
