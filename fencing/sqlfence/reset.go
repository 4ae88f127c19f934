package sqlfence

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Reset drops the mark of a resource, and tells a of that (nil: Options.Auditor):
// for a resource that exists no more, that another lock is to guard from now on,
// or whose mark no token reaches. From then on any token passes that is not below
// the floor (see [Guard.Expire]), so make sure first that no stale holder is left.
// Without a mark it does nothing. It waits for a guarded write that is on its way.
//
// The error is a *holdfast.NameError or what the database said, with the context's.
// The mark may have been dropped then, and the record has the error. Repeating is
// safe: a mark that was set since the reset read it is left alone.
func (g *Guard) Reset(ctx context.Context, resource string, a fencing.Auditor) error {
	if err := CheckResource(resource); err != nil {
		return err
	}
	if a == nil {
		a = g.opts.Auditor
	}
	for {
		if err := backoff.ContextErr(ctx); err != nil {
			return resetFailed(ctx, resource, err)
		}
		mark, found, err := g.mark(ctx, resource)
		if err != nil {
			return resetFailed(ctx, resource, err)
		}
		if !found {
			return nil
		}
		values := (&claimant{m: &g.m, resource: resource, claim: mark}).arguments()
		res, err := g.db.ExecContext(ctx, g.reset.query, g.reset.bind(values)...)
		if err != nil {
			err = resetFailed(ctx, resource, err)
			fencing.AuditReset(ctx, a, resource, mark, err)
			return err
		}
		if n, err := res.RowsAffected(); err == nil && n == 0 {
			continue // it was raised meanwhile
		}
		fencing.AuditReset(ctx, a, resource, mark, nil)
		return nil
	}
}

func resetFailed(ctx context.Context, resource string, err error) error {
	return fmt.Errorf("sqlfence: reset of the mark of %s: %w", names.Quote(resource), withContext(ctx, err))
}

// mark reads a mark as it is committed.
func (g *Guard) mark(ctx context.Context, resource string) (mark fencing.Claim, found bool, err error) {
	values := (&claimant{m: &g.m, resource: resource}).arguments()
	rows, err := g.db.QueryContext(ctx, g.look.query, g.look.bind(values)...)
	if err != nil {
		return fencing.Claim{}, false, err
	}
	defer rows.Close()
	if rows.Next() {
		found = true
		err = rows.Scan(&mark.Name, (*int64)(&mark.Token))
	}
	if err == nil {
		err = rows.Err()
	}
	return mark, found, err
}
