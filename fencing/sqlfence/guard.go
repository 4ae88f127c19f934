package sqlfence

import (
	"context"
	"database/sql"
	"reflect"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
)

// Guard keeps the marks of resources in a database, and lets what writes to that
// database do so only with a token that is not below the mark. It has no state
// of its own: any number of guards, in any number of processes, may work on one
// table. It may be used by any number of goroutines.
type Guard struct {
	db    *sql.DB
	m     Marks
	look  statement // for the mark of a resource, as it is committed
	reset statement
	opts  Options
}

// New returns a guard over db. It does no I/O; see [Guard.EnsureSchema]. A nil
// opts means all defaults. The error is an *holdfast.ArgumentError or a
// *holdfast.ArgumentError.
func New(db *sql.DB, dialect Dialect, opts *Options) (*Guard, error) {
	if db == nil {
		return nil, &holdfast.ArgumentError{Argument: "db", Reason: "is nil"}
	}
	g := &Guard{db: db}
	if opts != nil {
		g.opts = *opts
	}
	m, err := newMarks(dialect, &g.opts)
	if err != nil {
		return nil, err
	}
	if err := g.opts.validate(); err != nil {
		return nil, err
	}
	g.m = *m
	g.look = dialect.statement("SELECT lock_name, token FROM " + m.table + " WHERE resource = {resource}")
	g.reset = dialect.statement("DELETE FROM " + m.table + " WHERE resource = {resource} AND lock_name = {name} AND token = {token}")
	return g, nil
}

// Raise is [Marks.Raise]: a guard inside a transaction of your own.
func (g *Guard) Raise(ctx context.Context, tx Tx, resource string, source fencing.Source) error {
	return g.m.Raise(ctx, tx, resource, source)
}

// RaiseClaim is [Marks.RaiseClaim].
func (g *Guard) RaiseClaim(ctx context.Context, tx Tx, resource string, c fencing.Claim) error {
	return g.m.RaiseClaim(ctx, tx, resource, c)
}

// Do runs fn in a transaction that commits only if source's token is not below
// the mark of the resource, which it raises to the token. Writers of one
// resource do this one after the other.
//
// The token is admitted if it is as large as the mark or larger: a holder may
// write as often as it likes, until a later one has. If source is a
// fencing.Holder, the context that fn gets carries it. fn must return the errors
// that the transaction's statements give it, must neither commit nor roll back,
// and must be done with tx when it returns.
//
// nil means that work and mark are committed. On any other error than
// holdfast.ErrOutcomeUnknown and [ErrTxEnded], nothing is written: neither fn's
// work nor the mark, if fn has left it to Do to end the transaction. A value that
// fn writes must be read in fn: what was read before may be as old as the read.
// The errors are:
//
//   - *holdfast.ArgumentError, *holdfast.NameError or *fencing.ClaimError (the holder's
//     name): refused as it stands, without a query.
//   - fencing.ErrNoToken, or what source's Check says (holdfast.ErrLost,
//     holdfast.ErrSuspended): refused without a query. To write while suspended
//     all the same, and leave it to the database to compare, give the holder's
//     Token as the source.
//   - fencing.ErrStale, a *fencing.MarkError with resource, token and mark: a
//     later holder has written. fn was not called.
//   - [ErrRewound], which Is fencing.ErrStale too, a *[RewoundError]: the token
//     is below the mark although its holder is the present one. An operator has
//     to do something, and the error says what.
//   - [ErrExpired], which Is fencing.ErrStale too: the mark of the resource has
//     expired, and the token is from before. Acquire again. fn was not called.
//   - fencing.ErrOtherName, a *fencing.OtherNameError: the resource was written under
//     a lock of another name. fn was not called.
//   - fencing.ErrEpochStep: no lock issues such a token. fn was not called.
//   - *[SchemaError]: the table is of an older version. fn was not called.
//   - *[UncommittedError]: fn has returned nil, but source's Check has failed
//     since, so its work was rolled back.
//   - holdfast.ErrOutcomeUnknown: the commit was sent and not answered. It may
//     have taken effect, or may yet; but never after a later holder's write, as
//     that waits until the database has decided on this one.
//   - [ErrTxEnded]: the transaction was gone before it could be committed.
//   - fn's own error, as it is; what the database said; the context's error,
//     with its cause.
//
// If fn panics, the transaction is rolled back and the panic goes on.
func (g *Guard) Do(ctx context.Context, resource string, source fencing.Source, fn func(ctx context.Context, tx *sql.Tx) error) error {
	r := &request{claimant: claimant{m: &g.m, resource: resource, source: source}, g: g, fn: fn}
	return r.do(ctx, g.opts.Retry)
}

// DoClaim is [Guard.Do] for a claim that was presented to this process by a
// holder elsewhere: the server's half of a write. There is no Check, as the
// holder is not here; the name in the claim is required. A claim that cannot be
// one is a *fencing.ClaimError (fencing.ErrBadClaim).
func (g *Guard) DoClaim(ctx context.Context, resource string, c fencing.Claim, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return g.doClaim(ctx, resource, c, g.opts.Retry, fn)
}

func (g *Guard) doClaim(ctx context.Context, resource string, c fencing.Claim, retry *backoff.Policy, fn func(ctx context.Context, tx *sql.Tx) error) error {
	r := &request{claimant: claimant{m: &g.m, resource: resource, presented: true, claim: c}, g: g, fn: fn}
	return r.do(ctx, retry)
}

// isNil also recognises the nil pointer inside an interface, which a program
// gets that goes on with the result of an acquisition that failed.
func isNil(s fencing.Source) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
