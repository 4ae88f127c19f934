package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Reset deletes the mark of a resource, if it has one, and records that in a (nil: Options.Auditor).
// Use it for a resource that no longer exists, that gets another lock, or whose mark no token can
// reach. No stale holder may be left: the next token is admitted if it is not below the floor (see
// [Guard.Expire]).
//
// The error is a *fencing.ClaimError for the resource, or that of the database or ctx; then the mark
// may be deleted or not. Repeating is safe.
func (g *Guard) Reset(ctx context.Context, resource string, a audit.Auditor) error {
	if ctx == nil {
		return errNilContext
	}
	if err := checkResource(resource); err != nil {
		return err
	}
	if a == nil {
		a = g.opts.Auditor
	}
	for {
		if err := retry.ContextErr(ctx); err != nil {
			return resetError(ctx, resource, err)
		}
		mark, found, err := g.mark(ctx, resource)
		if err != nil {
			return resetError(ctx, resource, err)
		}
		if !found {
			return nil
		}
		values := (&claimant{m: &g.m, resource: resource, claim: mark}).arguments()
		var n int64
		err = g.inTx(ctx, nil, func(tx *sql.Tx) error {
			res, err := tx.ExecContext(ctx, g.deleteMark.query, g.deleteMark.bind(values)...)
			if err == nil {
				n, err = res.RowsAffected()
			}
			return err
		})
		if err != nil {
			err = resetError(ctx, resource, err)
		} else if n == 0 {
			continue // it was raised in the meantime
		}
		audit.Tell(ctx, a, audit.Record{
			Event: audit.Reset, Name: mark.Name, Resource: resource, Mark: mark.Token, Err: err,
		})
		return err
	}
}

func resetError(ctx context.Context, resource string, err error) error {
	return fmt.Errorf("sqlfence: reset of the mark of %s: %w", names.Quote(resource), withContext(ctx, err))
}

// mark reads the committed mark.
func (g *Guard) mark(ctx context.Context, resource string) (mark fencing.Claim, found bool, err error) {
	values := (&claimant{m: &g.m, resource: resource}).arguments()
	err = g.inTx(ctx, nil, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, g.readMark.query, g.readMark.bind(values)...).Scan(&mark.Name, (*int64)(&mark.Token))
		if found = err == nil; errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return mark, found, err
}
