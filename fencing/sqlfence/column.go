package sqlfence

import (
	"database/sql"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Column is a fencing token in a column of your own table, for work that is one UPDATE of one row. It
// needs one round trip and no second table. docs/fencing-sql.md has an example.
//
// The column is BIGINT NOT NULL DEFAULT 0; NULL counts as 0, "no holder yet". Update exactly one row,
// by its key, and compute in the statement. The row must exist: an INSERT has no mark to compare with.
// What [Guard.Do] does beyond that is yours: Check before the statement and the commit, the meaning of
// a failed commit, and the same lock for all writers, whose name is not recorded. Any larger token
// passes, also a forged one of a client, which then locks the row until you change it by hand: compare
// with fencing.MaxEpochStep.
//
// MySQL counts the rows that an UPDATE has changed, unless the connection sets CLIENT_FOUND_ROWS
// (clientFoundRows=true in go-sql-driver's DSN). Set it if a trigger of the table inserts into a table
// with AUTO_INCREMENT: otherwise [Column.Stale] takes an UPDATE that matched the row and left all its
// values as they were for a stale one.
type Column struct {
	dialect Dialect
	name    string
}

// NewColumn returns the column of that name: 1 to 63 ASCII letters, digits and
// underscores, not starting with a digit. The name is not quoted. The error is a
// *holdfast.ArgumentError.
func NewColumn(dialect Dialect, name string) (*Column, error) {
	if err := dialect.check(); err != nil {
		return nil, err
	}
	if !identifier.MatchString(name) {
		return nil, &holdfast.ArgumentError{Argument: "name",
			Reason: "is " + names.Quote(name) + ", not the name of a column"}
	}
	return &Column{dialect, name}, nil
}

// Set returns the assignment that raises the mark, for the SET of an UPDATE. placeholder is the
// statement's own for the token as an int64, such as "$2" or "?". For MySQL it sets LAST_INSERT_ID as
// well.
func (c *Column) Set(placeholder string) string {
	if c.dialect == MySQL {
		return c.name + " = LAST_INSERT_ID(" + placeholder + ")"
	}
	return c.name + " = " + placeholder
}

// Where returns the condition that the mark is not above the token, for the WHERE of an
// UPDATE. Combine it with AND. It is false for tokens of zero or less.
func (c *Column) Where(placeholder string) string {
	return "COALESCE(NULLIF(" + c.name + ", 0), 1) <= " + placeholder
}

// Stale returns nil if an UPDATE with [Column.Set] and [Column.Where] has written the row.
// fencing.ErrStale means that no row matched and nothing was written: the mark is above the token, the
// row does not exist, or another condition was false. holdfast.ErrNoToken means that the token is zero
// or negative, any other error that the driver cannot count rows.
func (c *Column) Stale(res sql.Result, resource string, token holdfast.Token) error {
	if token <= 0 {
		return holdfast.ErrNoToken
	}
	rows, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("sqlfence: write to %s: %w", names.Quote(resource), err)
	}
	if rows > 0 {
		return nil
	}
	unless := ""
	if c.dialect == MySQL {
		id, err := res.LastInsertId()
		if err != nil {
			return fmt.Errorf("sqlfence: write to %s: %w", names.Quote(resource), err)
		}
		if id == int64(token) {
			return nil
		}
		unless = ", unless it changed nothing and a trigger inserted a row: then set clientFoundRows"
	}
	return fmt.Errorf("sqlfence: write to %s with token %v: refused, there is no row with a mark not above it%s: %w",
		names.Quote(resource), token, unless, fencing.ErrStale)
}
