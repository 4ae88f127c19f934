package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// request is one guarded write.
type request struct {
	claimant
	g            *Guard
	fn           func(ctx context.Context, tx *sql.Tx) error
	callerAudits bool // a refusal is recorded by the caller
}

func (r *request) do(ctx context.Context, policy *backoff.Policy) error {
	err := r.repeat(ctx, policy)
	if !r.refused {
		return err
	}
	// Here the transaction has ended, so etcd may be asked: no writer waits for an RPC
	// while a row is locked.
	if below := (*fencing.MarkError)(nil); errors.As(err, &below) && below.Err == nil {
		err = r.explain(ctx, below)
	}
	if !r.callerAudits {
		r.audit(ctx, err)
	}
	return err
}

// repeat makes as many attempts as policy allows, one if it is nil.
func (r *request) repeat(ctx context.Context, policy *backoff.Policy) error {
	switch {
	case ctx == nil:
		return errNilContext
	case r.fn == nil:
		return &holdfast.ArgumentError{Argument: "fn", Reason: "is nil"}
	}
	if err := checkResource(r.resource); err != nil {
		return err
	}
	if err := r.checkNesting(ctx); err != nil {
		return err
	}
	if policy == nil {
		_, err := r.attempt(ctx)
		return err
	}
	return backoff.Retry(ctx, *policy, func(ctx context.Context) error {
		again, err := r.attempt(ctx)
		if again {
			return retry.Again(err)
		}
		return retry.Final(err)
	})
}

// attempt runs one transaction. again reports that the database gave it up for another
// one and rolled it back entirely.
func (r *request) attempt(ctx context.Context) (again bool, err error) {
	if err := r.admit(); err != nil {
		return false, err
	}
	if err := retry.ContextErr(ctx); err != nil {
		return false, fencing.NotDone(fmt.Errorf("%v: not sent: %w", r, err))
	}
	r.g.addFloor(ctx)
	tx, err := r.g.db.BeginTx(ctx, &sql.TxOptions{Isolation: r.g.opts.Isolation})
	if err != nil {
		return r.g.transient(err), r.failed(ctx, "begin", err)
	}
	// Covers a panic and a Goexit in fn. After Commit it does nothing. Its error does
	// not matter: the end of the connection rolls back as well.
	defer tx.Rollback()

	if savepoint := r.m.sql.savepoint; savepoint != "" {
		if _, err := tx.ExecContext(ctx, savepoint); err != nil {
			return r.g.transient(err), r.failed(ctx, "set a savepoint", err)
		}
	}
	if err := r.raise(ctx, SQLTx(tx)); err != nil {
		again := r.g.transient(err) || errors.Is(err, errRaiseLost) && r.savepointGone(ctx, tx)
		return !r.refused && again, err
	}
	if err := r.work(ctx, tx); err != nil {
		return r.workFailed(ctx, tx, err)
	}
	return r.commit(ctx, tx)
}

func (r *request) work(ctx context.Context, tx *sql.Tx) error {
	if h, ok := r.source.(fencing.Holder); ok {
		ctx = fencing.NewContext(ctx, h)
	}
	open := &openWork{r: r}
	open.outer, _ = ctx.Value(workKey{}).(*openWork)
	defer open.over.Store(true)
	return r.fn(context.WithValue(ctx, workKey{}, open), tx)
}
