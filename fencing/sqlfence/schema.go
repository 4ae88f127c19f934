package sqlfence

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// DefaultTable is the default of Options.Table, and the table in [Migrations].
const DefaultTable = "holdfast_fence"

//go:embed migrations
var migrations embed.FS

// Migrations returns the schema of a dialect for migration tools, one statement per file:
// 0001_holdfast_fence.up.sql, 0001_holdfast_fence.down.sql, and so on. Future versions only add files.
func Migrations(d Dialect) fs.FS {
	sub, err := fs.Sub(migrations, "migrations/"+d.String())
	if err != nil {
		return embed.FS{} // unreachable: the path is valid, and need not exist
	}
	return sub
}

// statementsUp returns the statements of the up files, for this table.
func (m *Marks) statementsUp() (statements []string) {
	files := Migrations(m.dialect)
	names, _ := fs.Glob(files, "*.up.sql")
	for _, name := range names {
		text, _ := fs.ReadFile(files, name)
		// The first occurrence is in the statement, not in a comment.
		statements = append(statements, strings.Replace(string(text), DefaultTable, m.table, 1))
	}
	return statements
}

// EnsureSchema creates or updates Options.Table as the files of [Migrations] do. All replicas may call
// it at each start; if the table is up to date, it needs only the right to SELECT. A schema in
// Options.Table must exist.
func (g *Guard) EnsureSchema(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if g.checkSchema(ctx) == nil {
		return nil
	}
	var failed error
	for _, statement := range g.m.statementsUp() {
		// A statement fails if its change exists already, or is made by another
		// replica now. What counts is the result.
		err := g.inTx(ctx, nil, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		})
		if err != nil && failed == nil {
			failed = err
		}
	}
	err := g.checkSchema(ctx)
	if err == nil {
		return nil
	}
	if failed == nil {
		failed = err
	}
	return withContext(ctx, fmt.Errorf("sqlfence: table %s: %w", g.m.table, failed))
}

func (g *Guard) checkSchema(ctx context.Context) error {
	const columns = "resource, lock_name, token, raises, raised_at"
	var none int
	query := "SELECT COUNT(*) FROM (SELECT " + columns + " FROM " + g.m.table + " WHERE 1 = 0) AS f"
	return g.inTx(ctx, nil, func(tx *sql.Tx) error { return tx.QueryRowContext(ctx, query).Scan(&none) })
}

// explainSchema returns a *SchemaError instead of err if the table is of an older
// version.
func (m *Marks) explainSchema(ctx context.Context, tx Tx, err error) error {
	if m.dialect == Postgres { // a failed transaction accepts no more queries
		if sqlState(err) == "42703" { // undefined column
			return m.outdated(err)
		}
		return err
	}
	if ctx.Err() == nil &&
		tx.Run(ctx, "SELECT token, raises, raised_at FROM "+m.table+" WHERE 1 = 0", nil, nil) != nil &&
		tx.Run(ctx, "SELECT token FROM "+m.table+" WHERE 1 = 0", nil, nil) == nil {
		return m.outdated(err)
	}
	return err
}

func (m *Marks) outdated(err error) error {
	return &SchemaError{Table: m.table, Statements: m.statementsUp()[1:], Err: err}
}

// SchemaError says that the table of marks is of an older version of this package.
// Nothing was written. Call [Guard.EnsureSchema] or run the missing [Migrations].
type SchemaError struct {
	Table      string   // quoted
	Statements []string // all that update an older table
	Err        error    // of the database
}

func (e *SchemaError) Error() string {
	var todo []string
	for _, s := range e.Statements {
		var lines []string
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				lines = append(lines, line)
			}
		}
		todo = append(todo, strings.Join(lines, " "))
	}
	return fmt.Sprintf("sqlfence: table %s is of an older version of holdfast (%v): call Guard.EnsureSchema or run %s",
		e.Table, e.Err, strings.Join(todo, " "))
}

// Unwrap returns Err.
func (e *SchemaError) Unwrap() error { return e.Err }
