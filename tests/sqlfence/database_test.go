package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// kind is a kind of database that tests run against.
type kind struct {
	name    string
	dialect sqlfence.Dialect
	open    func(t testing.TB, name string) driver.Connector // creates an empty database

	// waiting is a query for the number of transactions that wait for a lock; "" if
	// there is none.
	waiting string
}

var kinds = []kind{
	{"SQLite", sqlfence.SQLite, openSQLite, ""},
	{"PostgreSQL", sqlfence.Postgres, openPostgres,
		"SELECT count(*) FROM pg_stat_activity WHERE application_name = ? AND wait_event_type = 'Lock'"},
	{"MariaDB", sqlfence.MySQL, openMariaDB(false), waitingInInnoDB},
	// The driver counts matched instead of changed rows, and puts arguments into the
	// text of statements instead of preparing them.
	{"MariaDB clientFoundRows", sqlfence.MySQL, openMariaDB(true), waitingInInnoDB},
}

// waitingInInnoDB counts in all databases, of which one has a test running. innodb_trx
// would tell them apart, but is not updated while it is read more often than every 100 ms.
const waitingInInnoDB = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status " +
	"WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS' AND ? <> ''"

// database is the database of a test.
type database struct {
	kind
	id        string
	connector driver.Connector
	db        *sql.DB
}

// onEach runs a test against each kind of database.
func onEach(t *testing.T, test func(t *testing.T, d *database)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { test(t, newDatabase(t, k)) })
	}
}

// onServers runs a test against each kind that has more than one writer.
func onServers(t *testing.T, test func(t *testing.T, d *database)) {
	t.Helper()
	for _, k := range kinds {
		if k.dialect != sqlfence.SQLite {
			t.Run(k.name, func(t *testing.T) { test(t, newDatabase(t, k)) })
		}
	}
}

var databases atomic.Int64

// newDatabase creates a database with the tables of the tests. guard adds that of the
// marks.
func newDatabase(t testing.TB, k kind) *database {
	t.Helper()
	d := &database{kind: k, id: fmt.Sprintf("test%d", databases.Add(1))}
	d.connector = k.open(t, d.id)
	d.db = d.pool(t, d.connector)
	serial := "BIGINT AUTO_INCREMENT PRIMARY KEY"
	switch k.dialect {
	case sqlfence.Postgres:
		serial = "BIGSERIAL PRIMARY KEY"
	case sqlfence.SQLite:
		serial = "INTEGER PRIMARY KEY AUTOINCREMENT"
	}
	d.exec(t, "CREATE TABLE history (seq "+serial+", resource VARCHAR(200) NOT NULL, token BIGINT NOT NULL, "+
		"work VARCHAR(200) NOT NULL)")
	d.exec(t, "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NULL DEFAULT 0)")
	return d
}

func (d *database) pool(t testing.TB, c driver.Connector) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(40) // more than a test uses, because connecting is slow
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// marks returns marks in the table of guard.
func (d *database) marks(auditor audit.Auditor) *sqlfence.Marks {
	m, err := sqlfence.NewMarks(d.dialect, sqlfence.Options{Auditor: auditor})
	if err != nil {
		panic(err)
	}
	return m
}

// guard returns a guard whose schema exists. Without opts.Auditor it is quiet.
func (d *database) guard(t testing.TB, opts *sqlfence.Options) *sqlfence.Guard {
	t.Helper()
	return d.guardOver(t, d.db, opts)
}

func (d *database) guardOver(t testing.TB, db *sql.DB, opts *sqlfence.Options) *sqlfence.Guard {
	t.Helper()
	var o sqlfence.Options
	if opts != nil {
		o = *opts
	}
	if o.Auditor == nil {
		o.Auditor = quiet
	}
	schema, err := sqlfence.New(d.db, d.dialect, o) // db may be there to lose commits
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.EnsureSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := sqlfence.New(db, d.dialect, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func isDeadlock(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1213
}

// sql replaces ? by the dialect's placeholders.
func (d *database) sql(query string) string {
	if d.dialect != sqlfence.Postgres {
		return query
	}
	parts := strings.Split(query, "?")
	for i := range parts[1:] {
		parts[i] += fmt.Sprintf("$%d", i+1)
	}
	return strings.Join(parts, "")
}

func (d *database) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := d.db.ExecContext(t.Context(), d.sql(query), args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// number returns the result of a query for one number.
func (d *database) number(t testing.TB, query string, args ...any) (n int64) {
	t.Helper()
	if err := d.db.QueryRowContext(t.Context(), d.sql(query), args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// mark returns the mark of a resource, 0 if it has none.
func (d *database) mark(t testing.TB, resource string) holdfast.Token {
	t.Helper()
	const query = "SELECT COALESCE(MAX(token), 0) FROM holdfast_fence WHERE resource = ?"
	return holdfast.Token(d.number(t, query, d.resource(resource)))
}

func (d *database) resource(name string) any {
	if d.dialect == sqlfence.MySQL {
		return []byte(name)
	}
	return name
}

// write returns guarded work that adds a row to the history.
func (d *database) write(resource string, token holdfast.Token, work string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		insert := d.sql("INSERT INTO history (resource, token, work) VALUES (?, ?, ?)")
		_, err := tx.ExecContext(ctx, insert, resource, int64(token), work)
		return err
	}
}

// inTx runs fn in a transaction.
func (d *database) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// works returns the history of a resource, in order.
func (d *database) works(t testing.TB, resource string) (works []string, tokens []holdfast.Token) {
	t.Helper()
	query := d.sql("SELECT token, work FROM history WHERE resource = ? ORDER BY seq")
	rows, err := d.db.QueryContext(t.Context(), query, resource)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var token int64
		var work string
		if err := rows.Scan(&token, &work); err != nil {
			t.Fatal(err)
		}
		works, tokens = append(works, work), append(tokens, holdfast.Token(token))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return works, tokens
}

// lastWork returns the last work in the history of a resource, "" if there is none.
func (d *database) lastWork(ctx context.Context, resource string) (work string, err error) {
	query := d.sql("SELECT work FROM history WHERE resource = ? ORDER BY seq DESC LIMIT 1")
	err = d.db.QueryRowContext(ctx, query, resource).Scan(&work)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return work, err
}

// waitForWaiters returns when n transactions wait for a lock.
func (d *database) waitForWaiters(t testing.TB, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if d.number(t, d.waiting, d.id) >= n {
			return
		}
	}
	t.Fatalf("fewer than %d transactions wait for a lock", n)
}

func openSQLite(t testing.TB, name string) driver.Connector {
	c, err := sqlite.NewConnector(sqliteDSN(filepath.Join(t.TempDir(), name)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sqliteDSN(path string) string {
	return "file:" + path + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(OFF)&_pragma=foreign_keys(1)"
}

// postgresDSN does not wait for the disk, which makes tests fast. No test crashes the
// server.
func postgresDSN(name string) string {
	return "host=" + postgres.dir + " user=postgres dbname=postgres sslmode=disable application_name=" + name +
		" search_path=" + name + " synchronous_commit=off"
}

func openPostgres(t testing.TB, name string) driver.Connector {
	t.Helper()
	postgres.require(t)
	c, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(postgresDSN(name))
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	return c
}

func openMariaDB(foundRows bool) func(t testing.TB, name string) driver.Connector {
	return openMariaDBOn(mariadb, foundRows)
}

func openMariaDBOn(s *server, foundRows bool) func(t testing.TB, name string) driver.Connector {
	return func(t testing.TB, name string) driver.Connector {
		t.Helper()
		s.require(t)
		db := sql.OpenDB(s.connector(t, "", foundRows))
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
		return s.connector(t, name, foundRows)
	}
}

// connector returns a connector to a database of a MariaDB server.
func (s *server) connector(t testing.TB, name string, foundRows bool) driver.Connector {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "root", "unix", s.socket(), name
	cfg.ClientFoundRows, cfg.InterpolateParams = foundRows, foundRows
	cfg.Logger = &mysql.NopLogger{}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connectorWith returns a connector whose sessions set variables.
func (s *server) connectorWith(t testing.TB, name string, variables map[string]string) driver.Connector {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName, cfg.Params = "root", "unix", s.socket(), name, variables
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sqlState returns the SQLSTATE of an error of PostgreSQL.
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
