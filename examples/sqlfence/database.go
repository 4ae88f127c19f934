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

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// The two rows of the table: one is written through the guard, the other is not.
const (
	guarded   = "guarded"
	unguarded = "unguarded"
)

// database is where the workers write. Each opens it for itself.
type database struct {
	db      *sql.DB
	dialect sqlfence.Dialect
	guard   *sqlfence.Guard
	table   string // of the work
	marks   string // of the guard
}

// open understands postgres://… and postgresql://… as pgx does, mysql:// followed
// by a DSN of go-sql-driver (user:password@tcp(host:3306)/name), and sqlite:// by
// a path. id makes the names of the tables unique.
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
		driver, d.dialect, dsn = "sqlite", sqlfence.SQLite, "file:"+rest+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	default:
		return nil, errors.New("--dsn begins with none of postgres://, mysql://, sqlite://")
	}
	var err error
	if d.db, err = sql.Open(driver, dsn); err != nil {
		return nil, err
	}
	d.guard, err = sqlfence.New(d.db, d.dialect, &sqlfence.Options{
		Table: d.marks,
		// The story tells of refusals itself.
		Auditor: audit.Func(func(context.Context, audit.Record) {}),
	})
	if err != nil {
		return nil, errors.Join(err, d.db.Close())
	}
	return d, nil
}

// create makes both tables. The names in the statements are this program's own.
func (d *database) create(ctx context.Context) error {
	if err := d.guard.EnsureSchema(ctx); err != nil {
		return err
	}
	for _, query := range []string{
		"CREATE TABLE " + d.table + " (name VARCHAR(20) PRIMARY KEY, value VARCHAR(40) NOT NULL)",
		"INSERT INTO " + d.table + " VALUES ('" + guarded + "', ''), ('" + unguarded + "', '')",
	} {
		if _, err := d.db.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

func (d *database) drop(ctx context.Context) error {
	_, err := d.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+d.table)
	_, err2 := d.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+d.marks)
	return errors.Join(err, err2)
}

// writeGuarded is the UPDATE of a program that has a guard.
func (d *database) writeGuarded(ctx context.Context, source fencing.Source, value string) error {
	return d.guard.Do(ctx, guarded, source, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, d.update(), value, guarded)
		return err
	})
}

// writePlainly is that of one that has none.
func (d *database) writePlainly(ctx context.Context, value string) error {
	_, err := d.db.ExecContext(ctx, d.update(), value, unguarded)
	return err
}

func (d *database) update() string {
	if d.dialect == sqlfence.Postgres {
		return "UPDATE " + d.table + " SET value = $1 WHERE name = $2"
	}
	return "UPDATE " + d.table + " SET value = ? WHERE name = ?"
}

func (d *database) read(ctx context.Context, name string) (value string, err error) {
	err = d.db.QueryRowContext(ctx, fmt.Sprintf("SELECT value FROM %s WHERE name = '%s'", d.table, name)).Scan(&value)
	return value, err
}

func (d *database) mark(ctx context.Context) (mark fencing.Token, err error) {
	err = d.db.QueryRowContext(ctx, fmt.Sprintf("SELECT token FROM %s WHERE resource = '%s'", d.marks, guarded)).Scan((*int64)(&mark))
	return mark, err
}
