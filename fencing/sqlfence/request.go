package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
)

// request is one guarded write on its way.
type request struct {
	g        *Guard
	resource string
	fn       func(ctx context.Context, tx *sql.Tx) error

	presented bool           // only a claim is there, no source
	source    fencing.Source // may be nil also by mistake
	claim     fencing.Claim  // if not presented: of the source; Name may be empty

	turnedAway bool // the guard, and not fn or the database, has refused it
}

func (r *request) String() string {
	return fmt.Sprintf("sqlfence: write to %s with token %v", quote(r.resource), r.claim.Token)
}

func (r *request) do(ctx context.Context, retry *backoff.Policy) error {
	err := r.repeat(ctx, retry)
	if !r.turnedAway {
		return err
	}
	// The transaction is over: this may ask etcd, and nobody waits for an RPC
	// with a row locked.
	if below, ok := err.(*fencing.MarkError); ok {
		err = r.explain(ctx, below)
	}
	fencing.AuditRefusal(ctx, r.g.opts.Auditor, r.resource, r.claim, "", err)
	return err
}

// repeat makes as many attempts as retry allows; nil is one.
func (r *request) repeat(ctx context.Context, retry *backoff.Policy) error {
	if r.fn == nil {
		return &ArgumentError{"fn", "is nil"}
	}
	if err := CheckResource(r.resource); err != nil {
		return err
	}
	if retry == nil {
		_, err := r.attempt(ctx)
		return err
	}
	return backoff.Retry(ctx, *retry, func(ctx context.Context) error {
		again, err := r.attempt(ctx)
		if again {
			return backoff.Again(err)
		}
		return backoff.Final(err)
	})
}

// attempt is one transaction. again reports that the database gave it up for
// the sake of another one, and that nothing of it is left.
func (r *request) attempt(ctx context.Context) (again bool, err error) {
	if err := r.admit(); err != nil {
		r.turnedAway = true
		return false, fmt.Errorf("%v: no query was made: %w", r, err)
	}
	if err := backoff.ContextErr(ctx); err != nil {
		return false, fmt.Errorf("%v: no query was made: %w", r, err)
	}
	tx, err := r.g.db.BeginTx(ctx, &sql.TxOptions{Isolation: r.g.opts.Isolation})
	if err != nil {
		return r.failed(ctx, "begin", err)
	}
	// Also for a panic, and a Goexit, in fn. Where Commit was called it does
	// nothing. Its error says nothing: what was not committed is rolled back by
	// the end of the connection too.
	defer tx.Rollback()

	if again, err := r.raise(ctx, tx); err != nil {
		return again, err
	}
	if err := r.work(ctx, tx); err != nil {
		return r.g.transient(err), err
	}
	return r.commit(ctx, tx)
}

// admit is what can be known without a query.
func (r *request) admit() error {
	if r.presented {
		return r.checkClaim()
	}
	if isNil(r.source) {
		return fencing.ErrNoToken
	}
	if err := r.source.Check(); err != nil {
		return err
	}
	if r.claim.Token = r.source.Token(); r.claim.Token <= 0 {
		return fencing.ErrNoToken
	}
	if named, ok := r.source.(fencing.Named); ok {
		r.claim.Name = named.Name()
	}
	if r.claim.Name == "" {
		return nil
	}
	return r.checkClaim()
}

func (r *request) checkClaim() error {
	if err := r.claim.Validate(); err != nil {
		return err
	}
	if reason := textReason(r.claim.Name, fencing.MaxName); reason != "" {
		return &fencing.ClaimError{Part: "name", Reason: reason}
	}
	return nil
}

// raise locks the row of the resource, until the end of the transaction, and
// raises the mark if it may be.
func (r *request) raise(ctx context.Context, tx *sql.Tx) (again bool, err error) {
	s := &r.g.sql
	name, token := r.claim.Name, int64(r.claim.Token)
	var mark fencing.Claim
	if s.read == "" {
		err = tx.QueryRowContext(ctx, s.raise, r.resource, name, token).Scan(&mark.Name, (*int64)(&mark.Token))
	} else {
		// As bytes: a string would be of the connection's character set.
		resource, name := []byte(r.resource), []byte(name)
		if _, err = tx.ExecContext(ctx, s.raise, resource, name, token, name, token); err == nil {
			err = tx.QueryRowContext(ctx, s.read, resource).Scan(&mark.Name, (*int64)(&mark.Token))
		}
	}
	if err != nil {
		return r.failed(ctx, "raise the mark", err)
	}
	if name != "" && mark.Name != name {
		r.turnedAway = true
		return false, r.claim.CheckName(r.resource, mark.Name)
	}
	if mark.Token != r.claim.Token {
		r.turnedAway = true
		return false, &fencing.MarkError{Resource: r.resource, Claim: r.claim, Mark: mark.Token}
	}
	if s.begin != "" {
		if _, err := tx.ExecContext(ctx, s.begin); err != nil {
			return r.failed(ctx, "set a savepoint", err)
		}
	}
	return false, nil
}

func (r *request) work(ctx context.Context, tx *sql.Tx) error {
	if h, ok := r.source.(fencing.Holder); ok {
		ctx = fencing.NewContext(ctx, h)
	}
	return r.fn(ctx, tx)
}

// failed is the error of a step before the commit: nothing is written.
func (r *request) failed(ctx context.Context, step string, err error) (again bool, _ error) {
	return r.g.transient(err), fmt.Errorf("%v: nothing is written: %s: %w", r, step, withContext(ctx, err))
}

// withContext joins the context's error, with its cause, to an error that may
// come of it. Drivers replace the one by the other, or hide it.
func withContext(ctx context.Context, err error) error {
	switch cerr := backoff.ContextErr(ctx); {
	case cerr == nil:
		return err
	case errors.Is(cerr, err):
		return cerr
	default:
		return fmt.Errorf("%w: %w", cerr, err)
	}
}
