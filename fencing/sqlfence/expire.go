package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

// ErrExpired is returned for the token of a holder from before a mark expired.
// Errors that match it are of type *[ExpiredError].
var ErrExpired = errors.New("fencing token is from before expired marks")

// ExpiredError says that a resource has no mark, and that a mark larger than the
// token has expired, perhaps that of this resource. The holder must acquire again.
// errors.Is finds [ErrExpired] and fencing.ErrStale. Nothing was written.
type ExpiredError struct {
	Below *fencing.MarkError // its Mark is the floor
}

func (e *ExpiredError) Error() string {
	b := e.Below
	return fmt.Sprintf("sqlfence: write to %s with token %v refused: the resource has no mark, and marks up to %v have expired: release and acquire again",
		names.Quote(b.Resource), b.Claim.Token, b.Mark)
}

// Is makes errors.Is(err, ErrExpired) true.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

func (e *ExpiredError) Unwrap() error { return e.Below }

// Expire forgets the marks that were not raised for idle, by the database's
// clock, and returns how many. It is for tables that grow with resources which
// are written for a while and then never again, such as one for each job. Run it
// now and then, under a lock, whose holder is the source:
//
//	n, err := g.Expire(ctx, lk, 30*24*time.Hour)
//
// No stale token gets in by that: the largest mark that is forgotten becomes the
// floor of the table, and a resource without a mark refuses tokens up to it, with
// an *[ExpiredError]. That may also refuse a present holder, if it has held its
// lock for longer than idle without a write; it must acquire again. So idle should
// be longer than any lock is held.
//
// Only marks below source's token are forgotten, so that the floor does not shut
// out those who acquire later. For that all locks of the table must be of one
// etcd and one namespace: tokens of others cannot be compared. Give each its own
// Options.Table.
//
// Errors: *holdfast.ArgumentError if idle is not positive, fencing.ErrNoToken or what
// source's Check says, and what the database said. The marks may be forgotten
// then; repeating is safe.
func (g *Guard) Expire(ctx context.Context, source fencing.Source, idle time.Duration) (forgotten int64, err error) {
	if idle <= 0 {
		return 0, &holdfast.ArgumentError{Argument: "idle", Reason: fmt.Sprintf("is %v, which is not positive", idle)}
	}
	c := &claimant{m: &g.m, source: source}
	if err := c.check(); err != nil {
		return 0, fmt.Errorf("sqlfence: no marks are expired: %w", err)
	}
	// At READ COMMITTED InnoDB locks the rows that go, and no gaps.
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	if g.m.dialect == SQLite {
		opts = nil // it has one level
	}
	tx, err := g.db.BeginTx(ctx, opts)
	if err == nil {
		defer tx.Rollback()
		forgotten, err = g.expire(ctx, tx, int64(c.claim.Token), max(1, int64(idle/time.Second)))
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return 0, fmt.Errorf("sqlfence: expire marks: %w", withContext(ctx, err))
	}
	return forgotten, nil
}

func (g *Guard) expire(ctx context.Context, tx *sql.Tx, token, idle int64) (forgotten int64, err error) {
	d, table := g.m.dialect, g.m.table
	// Numbers, and of this function: no placeholders, which differ.
	idleRows := fmt.Sprintf(" FROM %s WHERE resource <> '' AND token < %d AND raised_at > 0 AND raised_at < %s - %d", table, token, d.now(), idle)
	// Rows from before there was this column are idle from now on. SQLite's
	// transaction begins with a write.
	if _, err := tx.ExecContext(ctx, "UPDATE "+table+" SET raised_at = "+d.now()+" WHERE raised_at = 0"); err != nil {
		return 0, err
	}
	var largest int64
	if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(token), 0)"+idleRows).Scan(&largest); err != nil || largest == 0 {
		return 0, err
	}
	// A row that was raised beyond that meanwhile stays.
	res, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE%s AND token <= %d", idleRows, largest))
	if err != nil {
		return 0, err
	}
	// The floor is locked last: first writers hold their own row and wait for it.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET token = %d, raises = raises + 1 WHERE resource = '' AND token < %d", table, largest+1, largest+1)); err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
