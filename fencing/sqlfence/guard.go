package sqlfence

import (
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Guard runs writes to a database only with a token that is not below the mark. Any number
// of guards, in any number of processes, can share a table. It is safe for concurrent use.
type Guard struct {
	db         *sql.DB
	m          Marks
	readMark   statement // as committed, without a lock
	deleteMark statement
	opts       Options
	hasFloor   atomic.Bool // the table has a floor, see addFloor
}

// New returns a guard for db. It sends nothing; see [Guard.EnsureSchema]. The error is a *holdfast.ArgumentError.
func New(db *sql.DB, dialect Dialect, o Options) (*Guard, error) {
	if db == nil {
		return nil, &holdfast.ArgumentError{Argument: "db", Reason: "is nil"}
	}
	g := &Guard{db: db, opts: o}
	m, err := newMarks(dialect, o)
	if err != nil {
		return nil, err
	}
	if err := g.opts.validate(); err != nil {
		return nil, err
	}
	g.m = *m
	g.readMark = dialect.statement("SELECT lock_name, token FROM " + m.table + " WHERE resource = {resource}")
	g.deleteMark = dialect.statement("DELETE FROM " + m.table +
		" WHERE resource = {resource} AND lock_name = {name} AND token = {token}")
	return g, nil
}

// Do runs fn in a transaction that commits only if source's token is not below the mark of the
// resource, and raises the mark to the token.
//
// fn must read what it computes with, return the errors of its statements, not commit or roll back,
// and not use tx after it returns. If source is a fencing.Holder, fn's context carries it. If fn
// panics, the transaction is rolled back. A Do within fn, with fn's context, that would wait for fn's
// own transaction is a *holdfast.ArgumentError. If db has no second connection (SetMaxOpenConns(1)),
// each Do within fn waits until its ctx ends.
//
// nil means that work and mark are committed. Of the errors only holdfast.ErrOutcomeUnknown, which
// [ErrTxEnded] Is as well, leaves open whether something was written. Before fn is called:
//
//   - *holdfast.ArgumentError, *fencing.ClaimError: an argument, the resource or the holder's name is
//     invalid.
//   - holdfast.ErrNoToken, or the error of source's Check. To write while suspended, use
//     [Guard.DoClaim].
//   - fencing.ErrStale, a *fencing.MarkError: a newer holder has written. [ErrRewound] and
//     [ErrExpired] are special cases.
//   - fencing.ErrOtherName: the mark is of another lock.
//   - fencing.ErrEpochStep: no lock issues such a token.
//   - *[SchemaError]: the table is of an older version.
//
// After fn:
//
//   - its own error, if fn has not ended the transaction: rolled back, or, if the connection was lost,
//     once the database notices; until then the resource stays locked. PostgreSQL is asked, and the
//     error then says so; otherwise it is unchanged;
//   - the error of source's Check: rolled back;
//   - [ErrTxEnded], and fn's own error if it returned one;
//   - holdfast.ErrOutcomeUnknown: the commit was not answered. It may take effect later, but not after
//     a newer holder's write.
//
// At any time: the error of the database, or ctx's with its cause.
func (g *Guard) Do(
	ctx context.Context, resource string, source fencing.Source, fn func(ctx context.Context, tx *sql.Tx) error,
) error {
	r := &request{claimant: claimant{m: &g.m, resource: resource, source: source}, g: g, fn: fn}
	return r.do(ctx, g.opts.Retry)
}

// DoClaim is [Guard.Do] for a claim of a holder elsewhere, without a Check. The claim must have a
// name. A malformed claim is a *fencing.ClaimError.
func (g *Guard) DoClaim(
	ctx context.Context, resource string, c fencing.Claim, fn func(ctx context.Context, tx *sql.Tx) error,
) error {
	return g.claimRequest(resource, c, fn).do(ctx, g.opts.Retry)
}

func (g *Guard) claimRequest(
	resource string, c fencing.Claim, fn func(ctx context.Context, tx *sql.Tx) error,
) *request {
	return &request{claimant: claimant{m: &g.m, resource: resource, presented: true, claim: c}, g: g, fn: fn}
}

// inTx runs fn in a transaction. What is one statement needs one as well: a session of MySQL
// may have autocommit off, and would keep the statement uncommitted, or a snapshot for ever.
func (g *Guard) inTx(ctx context.Context, opts *sql.TxOptions, fn func(tx *sql.Tx) error) error {
	tx, err := g.db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// addFloor adds the row of the floor to a new table, once for each Guard, and in a transaction of its own: in that of a
// write, all others for resources without a mark would wait until it ended, and one within its own work for ever. An
// error comes again from the write, which says what it means.
func (g *Guard) addFloor(ctx context.Context) {
	if g.hasFloor.Load() {
		return
	}
	err := g.inTx(ctx, nil, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, g.m.sql.addFloor)
		return err
	})
	if err == nil {
		g.hasFloor.Store(true)
	}
}
