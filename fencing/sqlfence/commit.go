package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
)

// commit ends the transaction after fn has returned nil.
func (r *request) commit(ctx context.Context, tx *sql.Tx) (again bool, err error) {
	if again, err := r.whole(ctx, tx); err != nil {
		return again, err
	}
	// As late as can be. What comes between this and the commit is for the
	// later holder's transaction to deal with: it waits for the row, and
	// overwrites what this one has written.
	if !r.presented {
		if err := r.source.Check(); err != nil {
			return false, &UncommittedError{Resource: r.resource, Token: r.claim.Token, Err: err}
		}
	}
	if err := tx.Commit(); err != nil {
		return r.uncertain(ctx, err)
	}
	return false, nil
}

// whole returns an error unless fn has run in one transaction, which is still
// open.
func (r *request) whole(ctx context.Context, tx *sql.Tx) (again bool, _ error) {
	if err := backoff.ContextErr(ctx); err != nil {
		// fn may have committed; this cannot be asked any more.
		return false, fmt.Errorf("%v: not committed: %w", r, err)
	}
	err := r.sameTransaction(ctx, tx)
	if err == nil {
		return false, nil
	}
	if r.g.transient(err) || ctx.Err() != nil {
		return r.g.transient(err), fmt.Errorf("%v: not committed: %w", r, withContext(ctx, err))
	}
	// If the connection answers, then the transaction is what was not there.
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, ErrTxEnded) || r.answers(ctx, tx) {
		return false, fmt.Errorf("%v: %w: %w", r, ErrTxEnded, err)
	}
	return false, r.failed(ctx, "end", err)
}

var errOtherTransaction = fmt.Errorf("%w: there is another one on its connection, or none", ErrTxEnded)

func (r *request) sameTransaction(ctx context.Context, tx *sql.Tx) error {
	if release := r.m.sql.release; release != "" {
		_, err := tx.ExecContext(ctx, release)
		return err
	}
	var id int64
	if err := tx.QueryRowContext(ctx, r.m.sql.id).Scan(&id); err != nil {
		return err
	}
	if id != r.id {
		return errOtherTransaction
	}
	return nil
}

// answers reports whether the connection still does. In PostgreSQL a transaction
// that has failed answers everything with an error of its own (25P02).
func (r *request) answers(ctx context.Context, tx *sql.Tx) bool {
	query := r.m.sql.savepoint
	if query == "" {
		query = r.m.sql.id
	}
	_, err := tx.ExecContext(ctx, query)
	return err == nil || sqlState(err) == "25P02"
}

// uncertain is the error for a commit that did not succeed.
func (r *request) uncertain(ctx context.Context, err error) (again bool, _ error) {
	switch {
	case errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil:
		// database/sql has rolled back because the context has ended.
		return false, fencing.NotDone(fmt.Errorf("%v: rolled back: %w", r, backoff.ContextErr(ctx)))
	case errors.Is(err, sql.ErrTxDone):
		return false, fmt.Errorf("%v: %w: %w", r, ErrTxEnded, err)
	case r.g.transient(err) || r.m.dialect.refused(err):
		return r.g.transient(err), r.failed(ctx, "commit", err)
	}
	return false, fmt.Errorf("%v: commit: %w: %w", r, holdfast.ErrOutcomeUnknown, withContext(ctx, err))
}
