package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Marks raises marks in transactions of your own. It can share a table with guards. It is safe for
// concurrent use.
type Marks struct {
	dialect Dialect
	table   string // quoted
	sql     statements
	auditor audit.Auditor
}

// NewMarks returns marks in Options.Table, which must exist ([Migrations],
// [Guard.EnsureSchema]). The options about transactions must be zero. The error is a *holdfast.ArgumentError.
func NewMarks(dialect Dialect, o Options) (*Marks, error) {
	if o.Isolation != sql.LevelDefault || o.Retry != nil || o.Transient != nil {
		return nil, &holdfast.ArgumentError{Argument: "Options",
			Reason: "sets Isolation, Retry or Transient, but the transactions are yours"}
	}
	return newMarks(dialect, o)
}

func newMarks(dialect Dialect, o Options) (*Marks, error) {
	if err := dialect.check(); err != nil {
		return nil, err
	}
	table := o.Table
	if table == "" {
		table = DefaultTable
	}
	if !tableName.MatchString(table) {
		return nil, &holdfast.ArgumentError{Argument: "Options.Table",
			Reason: "is " + names.Quote(table) + ", not the name of a table"}
	}
	m := &Marks{dialect: dialect, table: dialect.quoteTable(table), auditor: o.Auditor}
	m.sql = dialect.statements(m.table)
	return m, nil
}

// Raise compares source's token with the mark of the resource, raises the mark to it, and keeps its
// row locked until tx ends. Call it first in the transaction, and source's Check once more right
// before the commit. If Raise fails, roll back; its errors are those that [Guard.Do] returns before
// fn, except [ErrRewound].
//
// If a commit's error does not prove a rollback, mark and writes took effect together, or not at all,
// or may do so later, but not after a newer holder's write. Raise again in a new transaction, and read
// there what happened.
//
// If Raise is not the first statement, reads may be as old as the first one (MySQL at REPEATABLE
// READ), or Raise fails if another transaction has written (PostgreSQL from REPEATABLE READ on, with
// 40001; SQLite, with SQLITE_BUSY). A statement that commits implicitly, or a rollback to a savepoint
// from before Raise, takes the guard away: Raise again.
//
// In a table that no [Guard] has written to, the first Raise adds the row of the floor. Until its tx ends,
// a Raise of another resource without a mark waits. That happens once.
func (m *Marks) Raise(ctx context.Context, tx Tx, resource string, source fencing.Source) error {
	return m.raise(ctx, tx, &claimant{m: m, resource: resource, source: source})
}

// RaiseClaim is [Marks.Raise] for a claim of a holder elsewhere, without a Check.
func (m *Marks) RaiseClaim(ctx context.Context, tx Tx, resource string, c fencing.Claim) error {
	return m.raise(ctx, tx, &claimant{m: m, resource: resource, presented: true, claim: c})
}

var errNilContext = &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}

func (m *Marks) raise(ctx context.Context, tx Tx, c *claimant) error {
	switch {
	case ctx == nil:
		return errNilContext
	case tx == nil:
		return &holdfast.ArgumentError{Argument: "tx", Reason: "is nil"}
	}
	if err := checkResource(c.resource); err != nil {
		return err
	}
	err := c.admit()
	if err == nil {
		err = c.raise(ctx, tx)
	}
	if c.refused {
		c.audit(ctx, err)
	}
	return err
}

// claimant is a holder that wants to raise a mark.
type claimant struct {
	m        *Marks
	resource string

	presented bool           // there is only a claim, no source
	source    fencing.Source // nil only by mistake, unless presented
	claim     fencing.Claim  // if not presented, that of source; Name may be empty

	id      int64 // of the transaction, in PostgreSQL
	refused bool  // the claim was refused, as opposed to any other error
}

func (c *claimant) String() string {
	return fmt.Sprintf("sqlfence: write to %s with token %v", names.Quote(c.resource), c.claim.Token)
}

func (c *claimant) audit(ctx context.Context, err error) {
	fence.AuditRefusal(ctx, c.m.auditor, c.resource, c.claim, "", err)
}

// admit refuses what can be refused without a query.
func (c *claimant) admit() error {
	if err := c.check(); err != nil {
		c.refused = true
		return fencing.NotDone(fmt.Errorf("%v: not sent: %w", c, err))
	}
	return nil
}

func (c *claimant) check() error {
	if c.presented {
		return c.checkClaim()
	}
	if names.IsNil(c.source) {
		return holdfast.ErrNoToken
	}
	c.claim.Token = c.source.Token() // first, because errors name it
	if err := c.source.Check(); err != nil {
		return err
	}
	if c.claim.Token <= 0 {
		return holdfast.ErrNoToken
	}
	if h, ok := c.source.(fencing.Holder); ok {
		c.claim.Name = names.Claimed(h)
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
	if reason := textProblem(c.claim.Name, fencing.MaxName); reason != "" {
		return &fencing.ClaimError{Part: "name", Reason: reason}
	}
	return nil
}

// raise locks the row of the resource until the end of the transaction, and raises the
// mark if the claim may pass.
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
		c.refused = true
		return err
	}
	if mark.Token != c.claim.Token {
		return c.failed(ctx, "raise the mark", errRaiseLost)
	}
	if raises == 1 {
		return c.checkFloor(ctx, tx, values)
	}
	return nil
}

// errRaiseLost means that the mark is not what it was raised to a moment ago. Either a Galera
// node has given up the transaction (see statements.savepoint), or something in the
// database drops the raise, and always will.
var errRaiseLost = errors.New("the mark is not what it was raised to: the database gave up the transaction unasked, " +
	"or a trigger, a rule or a proxy drops writes to the table of marks")

// checkFloor is for a resource that had no mark: its mark may have expired.
func (c *claimant) checkFloor(ctx context.Context, tx Tx, values *arguments) error {
	s := &c.m.sql
	var floor holdfast.Token
	err := tx.Run(ctx, s.addFloor, nil, nil)
	if err == nil {
		err = tx.Run(ctx, s.floor, nil, []any{(*int64)(&floor)})
	}
	switch {
	case err != nil:
		return c.failed(ctx, "read the floor", err)
	case c.claim.Token >= floor:
		return nil
	}
	// In case the caller commits in spite of the error, the token must not become the
	// mark. Deleting the row instead would let stale tokens in, if the statement ran
	// outside the transaction.
	values[argToken] = int64(floor)
	if err := tx.Run(ctx, s.lift.query, s.lift.bind(values), nil); err != nil {
		return c.failed(ctx, "refuse a token below the floor", err)
	}
	c.refused = true
	below := &fencing.MarkError{Resource: c.resource, Claim: c.claim, Mark: floor, MarkName: c.claim.Name}
	below.Err = fmt.Errorf("%w: it has no mark, and marks up to %v have expired: release and acquire again; if etcd was "+
		"restored from a backup, raise the epoch to %d or more before that (etcdfence.BumpEpoch)",
		ErrExpired, floor, below.NeedsEpoch())
	return below
}

func (c *claimant) arguments() *arguments {
	token := c.claim.Token
	first, low := token, holdfast.Token(0)
	if c.claim.CheckMark(c.resource, fencing.Claim{}) != nil {
		first = 1 // the token may not pass this mark either
	}
	if epoch := token.Epoch() - fencing.MaxEpochStep; epoch > 0 {
		low, _ = holdfast.NewToken(epoch, 1)
		low-- // revision 0, which no token has
	}
	values := &arguments{
		argResource: c.resource, argName: c.claim.Name,
		argFirst: int64(first), argLow: int64(low), argToken: int64(token),
	}
	if c.m.dialect == MySQL {
		// As bytes: a string would be converted from the connection's character set.
		values[argResource], values[argName] = []byte(c.resource), []byte(c.claim.Name)
	}
	return values
}

// failed returns the error of a step before the commit.
func (c *claimant) failed(ctx context.Context, step string, err error) error {
	return fencing.NotDone(fmt.Errorf("%v: nothing was written: %s: %w", c, step, withContext(ctx, err)))
}

// withContext joins ctx's error and its cause to err, if ctx has ended: drivers replace
// the one by the other, or hide it.
func withContext(ctx context.Context, err error) error {
	switch cerr := retry.ContextErr(ctx); {
	case cerr == nil:
		return err
	case errors.Is(cerr, err):
		return cerr
	default:
		return fmt.Errorf("%w: %w", cerr, err)
	}
}
