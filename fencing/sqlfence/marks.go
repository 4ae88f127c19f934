package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Marks raises marks in transactions of your own: those of an ORM, of pgx, or
// where the guarded write is one of several things that a transaction does. Where
// the transaction can be left to [Guard.Do], it is the simpler one.
//
// Marks has no state and may be used by any number of goroutines. It works on the
// same table as a [Guard] with the same Options.Table.
type Marks struct {
	dialect Dialect
	table   string // quoted
	sql     statements
	auditor fencing.Auditor
}

// NewMarks returns marks in the table Options.Table, which must exist: see
// [Migrations] and [Guard.EnsureSchema]. Of the options it takes Table and
// Auditor; the others are about transactions of a [Guard], and must be zero. A nil
// opts means all defaults. The error is an *holdfast.ArgumentError.
func NewMarks(dialect Dialect, opts *Options) (*Marks, error) {
	if opts == nil {
		opts = &Options{}
	}
	if opts.Isolation != sql.LevelDefault || opts.Retry != nil || opts.Transient != nil {
		return nil, &holdfast.ArgumentError{Argument: "Options", Reason: "has more than Table and Auditor, and the transactions are yours"}
	}
	return newMarks(dialect, opts)
}

func newMarks(dialect Dialect, opts *Options) (*Marks, error) {
	if dialect < Postgres || dialect > SQLite {
		return nil, &holdfast.ArgumentError{Argument: "dialect", Reason: "is " + dialect.String() + ", which is not one of its values"}
	}
	table := opts.Table
	if table == "" {
		table = DefaultTable
	}
	if !tableName.MatchString(table) {
		return nil, &holdfast.ArgumentError{Argument: "Options.Table", Reason: "is " + names.Quote(table) + ", which is not the name of a table"}
	}
	m := &Marks{dialect: dialect, table: dialect.quoteTable(table), auditor: opts.Auditor}
	m.sql = dialect.statements(m.table)
	return m, nil
}

// Raise compares source's token with the mark of the resource, raises the mark to
// it, and keeps the mark's row locked until tx ends. Call it first in the
// transaction, and the guarded writes after it.
//
// When it has returned nil, what your commit proves depends on its answer:
//
//   - nil: the mark and all writes of the transaction are committed, and no
//     smaller token has written to the resource since the mark, nor can from now on.
//   - an error that says that the transaction was rolled back: neither is.
//   - any other error, such as a lost connection: the outcome is unknown. Mark and
//     writes took effect together, or not at all, or may yet; never after a later
//     holder's write, as that waits until the database has decided. Raise again in
//     a new transaction, and read there what has come of it. Do not just repeat
//     the writes.
//
// Call source's Check once more right before the commit, and roll back if it
// fails.
//
// In a transaction with nothing else in it, Raise after an acquisition shuts out
// the holders before this one at once. What is read after that commit is not
// overwritten by them.
//
// After an error roll the transaction back. The errors are those of [Guard.Do]
// from before fn: *holdfast.ArgumentError, *holdfast.NameError, *fencing.ClaimError,
// fencing.ErrNoToken, what Check says, fencing.ErrStale (an *[ExpiredError] is
// one; [ErrRewound] is not looked for, as that asks etcd), fencing.ErrOtherName,
// fencing.ErrEpochStep, a *[SchemaError], and what the database said.
//
// Not first in its transaction, Raise guards as well, but: in MySQL at REPEATABLE
// READ later reads show what stood at the first one; in PostgreSQL from REPEATABLE
// READ on it fails with SQLSTATE 40001 if another has written meanwhile; in SQLite
// with SQLITE_BUSY. Do not end the transaction before the writes, also not by a
// statement that commits by itself: they would not be guarded.
func (m *Marks) Raise(ctx context.Context, tx Tx, resource string, source fencing.Source) error {
	return m.raise(ctx, tx, &claimant{m: m, resource: resource, source: source})
}

// RaiseClaim is [Marks.Raise] for a claim that was presented to this process by a
// holder elsewhere.
func (m *Marks) RaiseClaim(ctx context.Context, tx Tx, resource string, c fencing.Claim) error {
	return m.raise(ctx, tx, &claimant{m: m, resource: resource, presented: true, claim: c})
}

func (m *Marks) raise(ctx context.Context, tx Tx, c *claimant) error {
	if tx == nil {
		return &holdfast.ArgumentError{Argument: "tx", Reason: "is nil"}
	}
	if err := CheckResource(c.resource); err != nil {
		return err
	}
	err := c.admit()
	if err == nil {
		err = c.raise(ctx, tx)
	}
	if c.turnedAway {
		c.audit(ctx, err)
	}
	return err
}

// claimant is who wants to raise a mark.
type claimant struct {
	m        *Marks
	resource string

	presented bool           // only a claim is there, no source
	source    fencing.Source // may be nil also by mistake
	claim     fencing.Claim  // if not presented: of the source; Name may be empty

	id         int64 // of the transaction, in PostgreSQL
	turnedAway bool  // it has no token, or none that passes
}

func (c *claimant) String() string {
	return fmt.Sprintf("sqlfence: write to %s with token %v", names.Quote(c.resource), c.claim.Token)
}

func (c *claimant) audit(ctx context.Context, err error) {
	fencing.AuditRefusal(ctx, c.m.auditor, c.resource, c.claim, "", err)
}

// admit is what can be known without a query.
func (c *claimant) admit() error {
	if err := c.check(); err != nil {
		c.turnedAway = true
		return fencing.NotDone(fmt.Errorf("%v: no query was made: %w", c, err))
	}
	return nil
}

func (c *claimant) check() error {
	if c.presented {
		return c.checkClaim()
	}
	if isNil(c.source) {
		return fencing.ErrNoToken
	}
	if err := c.source.Check(); err != nil {
		return err
	}
	if c.claim.Token = c.source.Token(); c.claim.Token <= 0 {
		return fencing.ErrNoToken
	}
	if named, ok := c.source.(fencing.Named); ok {
		c.claim.Name = named.Name()
	}
	if c.claim.Name == "" {
		return nil
	}
	return c.checkClaim()
}

func (c *claimant) checkClaim() error {
	if err := c.claim.Validate(); err != nil {
		return err
	}
	if reason := textReason(c.claim.Name, fencing.MaxName); reason != "" {
		return &fencing.ClaimError{Part: "name", Reason: reason}
	}
	return nil
}

// raise locks the row of the resource, until the end of the transaction, and
// raises the mark if it may be.
func (c *claimant) raise(ctx context.Context, tx Tx) error {
	values := c.arguments()
	var mark fencing.Claim
	var raises int64
	dest := []any{&mark.Name, (*int64)(&mark.Token), &raises, &c.id}
	s := &c.m.sql
	var err error
	if s.mark.query == "" {
		err = tx.Run(ctx, s.raise.query, s.raise.bind(values), dest)
	} else if err = tx.Run(ctx, s.raise.query, s.raise.bind(values), nil); err == nil {
		err = tx.Run(ctx, s.mark.query, s.mark.bind(values), dest)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = errRaiseLost
	}
	if err != nil {
		return c.failed(ctx, "raise the mark", c.m.explainSchema(ctx, tx, err))
	}
	if err := c.claim.CheckMark(c.resource, mark); err != nil {
		c.turnedAway = true
		return err
	}
	if mark.Token != c.claim.Token {
		return c.failed(ctx, "raise the mark", errRaiseLost)
	}
	if raises == 1 {
		return c.first(ctx, tx, values)
	}
	return nil
}

// errRaiseLost says that the mark is not what it was raised to a moment before: a
// node of Galera has given up the transaction; see statements.savepoint.
var errRaiseLost = errors.New("the database has rolled back the transaction after the mark was raised")

// first is for a resource that had no mark: it may have been forgotten.
func (c *claimant) first(ctx context.Context, tx Tx, values *arguments) error {
	s := &c.m.sql
	var floor fencing.Token
	err := tx.Run(ctx, s.floor, nil, []any{(*int64)(&floor)})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return c.failed(ctx, "read the floor", c.m.outdated(err))
	case err != nil:
		return c.failed(ctx, "read the floor", err)
	case c.claim.Token >= floor:
		return nil
	}
	// For a caller who commits in spite of the error: the token must not become
	// the mark. A statement that deletes the row would open a door, should it run
	// outside of the transaction.
	values[argToken] = int64(floor)
	if err := tx.Run(ctx, s.lift.query, s.lift.bind(values), nil); err != nil {
		return c.failed(ctx, "refuse a token below the floor", err)
	}
	c.turnedAway = true
	return &ExpiredError{&fencing.MarkError{Resource: c.resource, Claim: c.claim, Mark: floor, MarkName: c.claim.Name}}
}

func (c *claimant) arguments() *arguments {
	token := c.claim.Token
	first, low := token, fencing.Token(0)
	if c.claim.CheckMark(c.resource, fencing.Claim{}) != nil {
		first = 1 // which it may not pass either
	}
	if epoch := token.Epoch() - fencing.MaxEpochStep; epoch > 0 {
		low, _ = fencing.NewToken(epoch, 1)
		low-- // the revision 0, which no token has
	}
	values := &arguments{argResource: c.resource, argName: c.claim.Name, argFirst: int64(first), argLow: int64(low), argToken: int64(token)}
	if c.m.dialect == MySQL {
		// As bytes: a string would be of the connection's character set.
		values[argResource], values[argName] = []byte(c.resource), []byte(c.claim.Name)
	}
	return values
}

// failed is the error of a step before the commit.
func (c *claimant) failed(ctx context.Context, step string, err error) error {
	return fencing.NotDone(fmt.Errorf("%v: nothing is written: %s: %w", c, step, withContext(ctx, err)))
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
