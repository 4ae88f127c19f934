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
// namespace.
//
// Errors: *holdfast.ArgumentError (idle is not positive), fencing.ErrNoToken, the error of source's
// Check, or that of the database; then marks may have been deleted.
func (g *Guard) Expire(ctx context.Context, source fencing.Source, idle time.Duration) (deleted int64, err error) {
	if idle <= 0 {
		return 0, &holdfast.ArgumentError{Argument: "idle", Reason: fmt.Sprintf("is %v, not positive", idle)}
	}
	c := &claimant{m: &g.m, source: source}
	if err := c.check(); err != nil {
		return 0, fmt.Errorf("sqlfence: no marks were expired: %w", err)
	}
	// At READ COMMITTED, InnoDB locks only the deleted rows, and no gaps.
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	if g.m.dialect == SQLite {
		opts = nil // it has a single level
	}
	err = g.inTx(ctx, opts, func(tx *sql.Tx) (err error) {
		deleted, err = g.expire(ctx, tx, int64(c.claim.Token), max(1, int64(idle/time.Second)))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlfence: expire marks: %w", withContext(ctx, err))
	}
	return deleted, nil
}

func (g *Guard) expire(ctx context.Context, tx *sql.Tx, token, idle int64) (deleted int64, err error) {
	d, table := g.m.dialect, g.m.table
	// Placeholders differ by dialect; these are numbers, made in this function.
	idleRows := fmt.Sprintf(" FROM %s WHERE resource <> '' AND token < %d AND raised_at > 0 AND raised_at < %s - %d",
		table, token, d.now(), idle)
	// Rows from before the column existed become idle from now on. As the first
	// statement, this makes SQLite's transaction begin with a write.
	if _, err := tx.ExecContext(ctx, "UPDATE "+table+" SET raised_at = "+d.now()+" WHERE raised_at = 0"); err != nil {
		return 0, err
	}
	var largest int64
	err = tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(token), 0)"+idleRows).Scan(&largest)
	if err != nil || largest == 0 {
		return 0, err
	}
	// A row that was raised above largest in the meantime stays.
	res, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE%s AND token <= %d", idleRows, largest))
	if err != nil {
		return 0, err
	}
	// The floor is locked last, because first writers lock their own row and then the
	// floor.
	raiseFloor := fmt.Sprintf("UPDATE %s SET token = %d, raises = raises + 1 WHERE resource = '' AND token < %d",
		table, largest+1, largest+1)
	if _, err := tx.ExecContext(ctx, raiseFloor); err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
