package sqlfence

import (
	"context"
	"embed"
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
// 0001_holdfast_fence.up.sql and .down.sql. Files are added, never changed. Each
// has one statement. An unknown dialect has no files.
func Migrations(d Dialect) fs.FS {
	sub, err := fs.Sub(migrations, "migrations/"+d.String())
	if err != nil {
		return embed.FS{} // cannot be: the path is valid, and need not exist
	}
	return sub
}

// EnsureSchema makes the table of marks if it does not exist. It is what the
// files of [Migrations] do, with Options.Table for the name. It may be called by
// all replicas at once, at each start. Where the table exists it needs no right
// but SELECT.
//
// The schema that Options.Table may name must exist.
func (g *Guard) EnsureSchema(ctx context.Context) error {
	if g.hasTable(ctx) == nil {
		return nil
	}
	ddl, err := fs.ReadFile(Migrations(g.dialect), "0001_holdfast_fence.up.sql")
	if err != nil {
		return err
	}
	_, err = g.db.ExecContext(ctx, strings.Replace(string(ddl), DefaultTable, g.table, 1))
	// CREATE TABLE IF NOT EXISTS of PostgreSQL fails if two run at once. Then
	// the other one has made it, which is all the same.
	if err != nil && g.hasTable(ctx) != nil {
		return withContext(ctx, fmt.Errorf("sqlfence: table %s: %w", g.table, err))
	}
	return nil
}

func (g *Guard) hasTable(ctx context.Context) error {
	rows, err := g.db.QueryContext(ctx, "SELECT resource, lock_name, token FROM "+g.table+" WHERE 1 = 0")
	if err != nil {
		return err
	}
	defer rows.Close()
	rows.Next() // nothing; drivers may report errors only here
	return rows.Err()
}
