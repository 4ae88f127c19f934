package sqlfence

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// DefaultTable is the table of marks unless Options.Table says otherwise, and
// the one in [Migrations].
const DefaultTable = "holdfast_fence"

//go:embed migrations
var migrations embed.FS

// Migrations returns the schema of a dialect for a migration tool:
// 0001_holdfast_fence.up.sql and .down.sql, and so on, to be run in the order of
// their names. Files are added, never changed. Each has one statement. An unknown
// dialect has no files.
func Migrations(d Dialect) fs.FS {
	sub, err := fs.Sub(migrations, "migrations/"+d.String())
	if err != nil {
		return embed.FS{} // cannot be: the path is valid, and need not exist
	}
	return sub
}

// statementsUp are those of the up files, for a table.
func (m *Marks) statementsUp() (statements []string) {
	files := Migrations(m.dialect)
	names, _ := fs.Glob(files, "*.up.sql")
	for _, name := range names {
		text, _ := fs.ReadFile(files, name)
		// Comments do not name the table before the statement does.
		statements = append(statements, strings.Replace(string(text), DefaultTable, m.table, 1))
	}
	return statements
}

// EnsureSchema makes the table of marks if it does not exist, and brings one of
// an older version up to date. It does what the files of [Migrations] do, with
// Options.Table for the name. It may be called by all replicas at once, at each
// start. Where the table is up to date it needs no right but SELECT.
//
// The schema that Options.Table may name must exist. Guards of older versions go
// on working with a table that was brought up to date.
func (g *Guard) EnsureSchema(ctx context.Context) error {
	if g.checkSchema(ctx) == nil {
		return nil
	}
	var failed error
	for _, statement := range g.m.statementsUp() {
		// What others did before, or do at this moment, may fail here. What
		// counts is what stands in the end.
		if _, err := g.db.ExecContext(ctx, statement); err != nil && failed == nil {
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
	var floor int
	err := g.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT "+columns+" FROM "+g.m.table+" WHERE resource = '') AS f").Scan(&floor)
	if err == nil && floor == 0 {
		err = errNoFloor
	}
	return err
}

var errNoFloor = errors.New("the row of the floor is missing")

// explainSchema returns a *SchemaError instead of err if the table is of an
// older version.
func (m *Marks) explainSchema(ctx context.Context, tx Tx, err error) error {
	if m.dialect == Postgres { // where a failed transaction takes no more queries
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

// SchemaError says that the table of marks is of an older version. Nothing was
// written.
type SchemaError struct {
	Table      string   // quoted
	Statements []string // that bring it up to date, those of [Migrations] from the second on
	Err        error    // what the database said
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
	return fmt.Sprintf("the table of marks %s is of an older version of this library (%v): call Guard.EnsureSchema, or run %s",
		e.Table, e.Err, strings.Join(todo, " "))
}

func (e *SchemaError) Unwrap() error { return e.Err }
