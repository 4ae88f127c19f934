package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// commit ends the transaction after fn has returned nil.
func (r *request) commit(ctx context.Context, tx *sql.Tx) (again bool, err error) {
	if again, err := r.verifyTx(ctx, tx); err != nil {
		return again, err
	}
	// As late as possible. A holder that comes between this check and the commit
	// waits for the row, and then overwrites what this one has written.
	if !r.presented {
		if err := r.source.Check(); err != nil {
			return false, fencing.NotDone(fmt.Errorf("%v: rolled back, the lock was lost before the commit: %w", r, err))
		}
	}
	if err := tx.Commit(); err != nil {
		return r.commitFailed(ctx, err)
	}
	return false, nil
}

// workFailed rolls back after fn has returned an error, and returns that error, with ErrTxEnded
// if fn has ended the transaction as well: then some of its work may be committed, and to
// repeat it would do that twice.
func (r *request) workFailed(ctx context.Context, tx *sql.Tx, err error) (again bool, _ error) {
	s := &r.m.sql
	// After an error with which the database ends a transaction, a missing savepoint says
	// nothing about fn.
	gone := ctx.Err() == nil && !r.m.dialect.endsTx(err) && r.savepointGone(ctx, tx)
	lost := tx.Rollback()
	gone = gone || errors.Is(lost, sql.ErrTxDone)
	again = r.g.transient(err)
	// A failed transaction answers no queries, so PostgreSQL is asked after its end.
	if s.status != "" && !gone && ctx.Err() == nil {
		var status sql.NullString
		serr := r.g.db.QueryRowContext(ctx, s.status, r.id).Scan(&status)
		if serr == nil && status.String == "in progress" && lost != nil {
			return false, fmt.Errorf("%v: nothing is committed: the connection was lost, and PostgreSQL has not noticed "+
				"yet: until then the mark's row stays locked: %w", r, err)
		}
		gone = serr == nil && status.String != "aborted"
		again = again && serr == nil
	}
	if gone && ctx.Err() == nil {
		return false, fmt.Errorf("%v: %w: %w", r, ErrTxEnded, err)
	}
	return again, err
}

// verifyTx returns an error unless fn has run entirely in tx, and tx is still open.
func (r *request) verifyTx(ctx context.Context, tx *sql.Tx) (again bool, _ error) {
	if err := retry.ContextErr(ctx); err != nil {
		// The database cannot be asked any more, and fn may have committed by SQL.
		return false, fmt.Errorf("%v: not committed: %w", r, err)
	}
	err := r.sameTx(ctx, tx)
	if err == nil {
		return false, nil
	}
	if r.g.transient(err) || ctx.Err() != nil {
		return r.g.transient(err), fmt.Errorf("%v: not committed: %w", r, withContext(ctx, err))
	}
	// If the connection still answers, the transaction is what is gone.
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, ErrTxEnded) || r.connectionAnswers(ctx, tx) {
		return false, fmt.Errorf("%v: %w: %w", r, ErrTxEnded, err)
	}
	return false, r.failed(ctx, "verify the transaction (the connection was lost, or fn left rows open)", err)
}

var errOtherTx = fmt.Errorf("%w: its connection has another one, or none", ErrTxEnded)

// sameTx asks the database: by the savepoint from before the raise, or by the id of
// the transaction.
func (r *request) sameTx(ctx context.Context, tx *sql.Tx) error {
	if release := r.m.sql.release; release != "" {
		_, err := tx.ExecContext(ctx, release)
		return err
	}
	var id int64
	if err := tx.QueryRowContext(ctx, r.m.sql.id).Scan(&id); err != nil {
		return err
	}
	if id != r.id {
		return errOtherTx
	}
	return nil
}

// savepointGone reports whether the connection answers and the savepoint from before the raise is
// gone, and with it the transaction. PostgreSQL has no savepoint.
func (r *request) savepointGone(ctx context.Context, tx *sql.Tx) bool {
	release := r.m.sql.release
	if release == "" {
		return false
	}
	_, err := tx.ExecContext(ctx, release)
	return err != nil && r.connectionAnswers(ctx, tx)
}

func (r *request) connectionAnswers(ctx context.Context, tx *sql.Tx) bool {
	query := r.m.sql.savepoint
	if query == "" {
		query = r.m.sql.id
	}
	_, err := tx.ExecContext(ctx, query)
	return err == nil || sqlState(err) == inFailedTx
}

// inFailedTx is what PostgreSQL answers to everything in a failed transaction.
const inFailedTx = "25P02"

// commitFailed returns the error of a commit that did not succeed.
func (r *request) commitFailed(ctx context.Context, err error) (again bool, _ error) {
	switch {
	case errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil:
		// database/sql rolled back when the context ended.
		return false, fencing.NotDone(fmt.Errorf("%v: rolled back: %w", r, retry.ContextErr(ctx)))
	case errors.Is(err, sql.ErrTxDone):
		return false, fmt.Errorf("%v: %w: %w", r, ErrTxEnded, err)
	case r.g.transient(err) || r.m.dialect.refusedCommit(err):
		return r.g.transient(err), r.failed(ctx, "commit", err)
	}
	return false, fmt.Errorf("%v: commit: %w: %w", r, holdfast.ErrOutcomeUnknown, withContext(ctx, err))
}
