package sqlfence

import (
	"database/sql"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Column is a fencing token in a table of your own: the bare form of the guard,
// for work that is one UPDATE of one row, in one round trip and without a second
// table.
//
//	col, err := sqlfence.NewColumn(sqlfence.Postgres, "fence")
//	...
//	query := "UPDATE accounts SET balance = balance - $1, " + col.Set("$2") + " WHERE id = $3 AND " + col.Where("$2")
//	...
//	if err := lk.Check(); err != nil {
//		return err
//	}
//	res, err := db.ExecContext(ctx, query, amount, int64(lk.Token()), id)
//	if err != nil {
//		return err
//	}
//	return col.Stale(res, "account 7", lk.Token())
//
// The column is a BIGINT NOT NULL DEFAULT 0 (NULL counts as 0, "no holder yet").
// Comparison and write are one statement, and the database locks the row for it:
// of two at once the second compares with what the first has written.
//
// A balance that was read before the UPDATE may be as old as the read: compute in
// the statement (balance = balance - 10), or read after an UPDATE that only raises
// the mark.
//
// What [Guard.Do] does beyond this is up to you: Check before and, in a
// transaction, before the commit; what an error of the commit means; the name of
// the lock, which is not recorded. The row must exist: an INSERT has nothing to
// compare with. Each UPDATE must be of one row by its key; of several rows some
// could be refused and others not.
type Column struct {
	dialect Dialect
	name    string
}

// NewColumn returns a column by its name: 1 to 63 letters, digits and
// underscores of ASCII, the first no digit. It is not quoted. The error is an
// *holdfast.ArgumentError.
func NewColumn(dialect Dialect, name string) (*Column, error) {
	if dialect < Postgres || dialect > SQLite {
		return nil, &holdfast.ArgumentError{Argument: "dialect", Reason: "is " + dialect.String() + ", which is not one of its values"}
	}
	if !identifier.MatchString(name) {
		return nil, &holdfast.ArgumentError{Argument: "name", Reason: "is " + names.Quote(name) + ", which is not the name of a column"}
	}
	return &Column{dialect, name}, nil
}

// Set returns the assignment that raises the mark, for the SET of an UPDATE. The
// placeholder is the statement's own for the token as an int64: "$2", "?".
//
// With MySQL, the assignment also tells [Column.Stale] by LAST_INSERT_ID that a
// row has matched. MySQL counts rows that changed; one that is written again by
// the same holder with the same values would count as none, like a stale write.
func (c *Column) Set(placeholder string) string {
	if c.dialect == MySQL {
		return c.name + " = LAST_INSERT_ID(" + placeholder + ")"
	}
	return c.name + " = " + placeholder
}

// Where returns the condition that the mark is not above the token, for the
// WHERE of an UPDATE. It is true for no token of zero or less. Put no OR beside
// it, but parentheses around what has one.
func (c *Column) Where(placeholder string) string {
	return "COALESCE(NULLIF(" + c.name + ", 0), 1) <= " + placeholder
}

// Stale says what came of an UPDATE that was made with [Column.Set] and
// [Column.Where] for the same token. It returns
//
//   - nil: the row was written, or it had all those values already and they were
//     the same holder's;
//   - fencing.ErrStale, a *[RowError]: no row has matched. The mark is above the
//     token, or there is no such row, or a condition of your own did not hold;
//     which one, a read can tell. Nothing was written;
//   - fencing.ErrNoToken: the token is none. Nothing was written;
//   - any other error: the driver cannot count.
//
// resource is for the error alone.
func (c *Column) Stale(res sql.Result, resource string, token fencing.Token) error {
	if token <= 0 {
		return fencing.ErrNoToken
	}
	rows, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("sqlfence: write to %s: %w", names.Quote(resource), err)
	}
	if rows > 0 {
		return nil
	}
	if c.dialect == MySQL {
		id, err := res.LastInsertId()
		if err != nil {
			return fmt.Errorf("sqlfence: write to %s: %w", names.Quote(resource), err)
		}
		if id == int64(token) {
			return nil
		}
	}
	return &RowError{resource, token}
}

// RowError says that a conditional UPDATE has found no row to write. errors.Is
// finds fencing.ErrStale. Unlike with a *fencing.MarkError, the mark is not
// known.
type RowError struct {
	Resource string
	Token    fencing.Token
}

func (e *RowError) Error() string {
	return fmt.Sprintf("sqlfence: write to %s with token %v refused: no row whose mark is not above it", names.Quote(e.Resource), e.Token)
}

// Is makes errors.Is(err, fencing.ErrStale) true.
func (e *RowError) Is(target error) bool { return target == fencing.ErrStale }
