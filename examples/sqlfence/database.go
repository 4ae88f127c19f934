//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// The rows of the table. The first is written through the guard.
const (
	guarded   = "guarded"
	unguarded = "unguarded"
)

// database is where the workers write. Each process opens its own.
type database struct {
	*sql.DB
	dialect sqlfence.Dialect
	guard   *sqlfence.Guard
	table   string // of the work
	marks   string // of the guard
}

// open accepts postgres://… and postgresql://… as pgx does, mysql:// followed by a DSN of go-sql-driver, like
// user:password@tcp(host:3306)/name, and sqlite:// followed by a path. The id makes the names of the tables unique.
func open(dsn, id string) (*database, error) {
	scheme, rest, _ := strings.Cut(dsn, "://")
	d := &database{table: "sqlfence_work_" + id, marks: "sqlfence_marks_" + id}
	var driver string
	switch scheme {
	case "postgres", "postgresql":
		driver, d.dialect = "pgx", sqlfence.Postgres
	case "mysql":
		driver, d.dialect, dsn = "mysql", sqlfence.MySQL, rest
	case "sqlite":
		// Without a busy timeout writers fail instead of waiting.
		driver, d.dialect = "sqlite", sqlfence.SQLite
		dsn = "file:" + rest + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	default:
		return nil, errors.New("--dsn must begin with postgres://, mysql:// or sqlite://")
	}
	var err error
	if d.DB, err = sql.Open(driver, dsn); err != nil {
		return nil, err
	}
	d.guard, err = sqlfence.New(d.DB, d.dialect, sqlfence.Options{
		Table: d.marks,
		// The steps report refusals, so the log does not.
		Auditor: audit.Func(func(context.Context, audit.Record) {}),
	})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// create creates both tables.
func (d *database) create(ctx context.Context) error {
	if err := d.guard.EnsureSchema(ctx); err != nil {
		return err
	}
	for _, query := range []string{
		"CREATE TABLE " + d.table + " (name VARCHAR(20) PRIMARY KEY, value VARCHAR(40) NOT NULL)",
		"INSERT INTO " + d.table + " VALUES ('" + guarded + "', ''), ('" + unguarded + "', '')",
	} {
		if _, err := d.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

func (d *database) drop(ctx context.Context) error {
	_, err := d.ExecContext(ctx, "DROP TABLE IF EXISTS "+d.table)
	_, err2 := d.ExecContext(ctx, "DROP TABLE IF EXISTS "+d.marks)
	return errors.Join(err, err2)
}

// writeGuarded updates a row through the guard.
func (d *database) writeGuarded(ctx context.Context, source fencing.Source, value string) error {
	return d.guard.Do(ctx, guarded, source, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, d.update(), value, guarded)
		return err
	})
}

// writePlainly updates the other row without it.
func (d *database) writePlainly(ctx context.Context, value string) error {
	_, err := d.ExecContext(ctx, d.update(), value, unguarded)
	return err
}

func (d *database) update() string {
	if d.dialect == sqlfence.Postgres {
		return "UPDATE " + d.table + " SET value = $1 WHERE name = $2"
	}
	return "UPDATE " + d.table + " SET value = ? WHERE name = ?"
}

func (d *database) read(ctx context.Context, name string) (value string, err error) {
	err = d.QueryRowContext(ctx, fmt.Sprintf("SELECT value FROM %s WHERE name = '%s'", d.table, name)).Scan(&value)
	return value, err
}

func (d *database) mark(ctx context.Context) (mark holdfast.Token, err error) {
	query := fmt.Sprintf("SELECT token FROM %s WHERE resource = '%s'", d.marks, guarded)
	err = d.QueryRowContext(ctx, query).Scan((*int64)(&mark))
	return mark, err
}
