package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/backoff"
)

// commit ends the transaction after fn has returned nil.
func (r *request) commit(ctx context.Context, tx *sql.Tx) (again bool, err error) {
	if err := backoff.ContextErr(ctx); err != nil {
		return false, fmt.Errorf("%v: rolled back: %w", r, err)
	}
	if end := r.g.sql.end; end != "" {
		if _, err := tx.ExecContext(ctx, end); err != nil {
			return r.ended(ctx, tx, err)
		}
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

// ended is the error for a transaction whose savepoint could not be released.
func (r *request) ended(ctx context.Context, tx *sql.Tx, err error) (again bool, _ error) {
	if again, failed := r.failed(ctx, "end", err); again || ctx.Err() != nil {
		return again, failed
	}
	// If the connection answers, then the savepoint is what was not there.
	if errors.Is(err, sql.ErrTxDone) || r.answers(ctx, tx) {
		return false, fmt.Errorf("%v: %w: %w", r, ErrTxEnded, err)
	}
	return r.failed(ctx, "end", err)
}

func (r *request) answers(ctx context.Context, tx *sql.Tx) bool {
	_, err := tx.ExecContext(ctx, r.g.sql.begin)
	return err == nil
}

// uncertain is the error for a commit that did not succeed.
func (r *request) uncertain(ctx context.Context, err error) (again bool, _ error) {
	switch {
	case errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil:
		// database/sql has rolled back because the context has ended.
		return false, fmt.Errorf("%v: rolled back: %w", r, backoff.ContextErr(ctx))
	case errors.Is(err, sql.ErrTxDone):
		return false, fmt.Errorf("%v: %w: %w", r, ErrTxEnded, err)
	case r.g.transient(err) || r.g.dialect.refused(err):
		return r.failed(ctx, "commit", err)
	}
	return false, fmt.Errorf("%v: commit: %w: %w", r, backoff.ErrOutcomeUnknown, withContext(ctx, err))
}
