//go:build linux

package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/tests/internal/stalewriter"
)

func beChild() { child.Main(writeUntilRefused) }

func writeUntilRefused(
	ctx context.Context, _ string, j stalewriter.Job, parent *child.Parent[stalewriter.Event],
) error {
	return stalewriter.Work(ctx, j, parent, openDatabase)
}

// The ways of writing.
const (
	byGuard  = "Guard"
	byRaise  = "Marks"
	byColumn = "Column"
)

var drivers = map[sqlfence.Dialect]string{sqlfence.SQLite: "sqlite", sqlfence.Postgres: "pgx", sqlfence.MySQL: "mysql"}

func openDatabase(ctx context.Context, j stalewriter.Job, _ *clientv3.Client) (stalewriter.Write, error) {
	dialect := sqlfence.Dialect(j.Detail)
	db, err := sql.Open(drivers[dialect], j.Address) // closed by the end of the process
	if err != nil {
		return nil, err
	}
	d := &database{kind: kind{dialect: dialect}, db: db}
	g, err := sqlfence.New(db, dialect, &sqlfence.Options{Auditor: quiet, Retry: retry()})
	if err != nil {
		return nil, err
	}
	col, err := sqlfence.NewColumn(dialect, "fence")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, h fencing.Holder) error {
		switch work := d.increment(j.Name, h.Token()); j.Way {
		case byRaise:
			return d.inTx(ctx, func(tx *sql.Tx) error {
				return errors.Join(g.Raise(ctx, sqlfence.SQLTx(tx), j.Name, h), work(ctx, tx))
			})
		case byColumn:
			return d.inTx(ctx, func(tx *sql.Tx) error {
				query := d.sql("UPDATE accounts SET balance = balance + 1, " + col.Set("?") + " WHERE id = 1 AND " + col.Where("?"))
				res, err := tx.ExecContext(ctx, query, int64(h.Token()), int64(h.Token()))
				if err != nil {
					return err
				}
				return errors.Join(col.Stale(res, j.Name, h.Token()), d.record(ctx, tx, j.Name, h.Token()))
			})
		default:
			return g.Do(ctx, j.Name, h, work)
		}
	}, nil
}

// increment reads and writes a counter in one transaction, and adds a row to the history.
func (d *database) increment(resource string, token holdfast.Token) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		var balance int64
		err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 1").Scan(&balance)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, d.sql("UPDATE accounts SET balance = ? WHERE id = 1"), balance+1)
		if err != nil {
			return err
		}
		return d.record(ctx, tx, resource, token)
	}
}

// record adds the counter's value to the history.
func (d *database) record(ctx context.Context, tx *sql.Tx, resource string, token holdfast.Token) error {
	var balance int64
	if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 1").Scan(&balance); err != nil {
		return err
	}
	return d.write(resource, token, fmt.Sprint(balance))(ctx, tx)
}

// Galera's processes write through different nodes.
func TestStaleWriterOfAStoppedProcessIsRefused(t *testing.T) {
	srv := etcdtest.Start(t)
	way := func(name, how string, d *database, a, b string) stalewriter.Way {
		d.guard(t, nil)
		d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 0)")
		j := stalewriter.Job{Endpoints: srv.Endpoints(), Name: "job " + d.id + how, Way: how, Detail: int(d.dialect)}
		w := stalewriter.Way{Name: name, A: j, B: j}
		w.A.Address, w.B.Address = a, b
		w.Read = func(t *testing.T) (counter int, writes []stalewriter.Record) {
			works, tokens := d.works(t, j.Name)
			for i, work := range works {
				value, err := strconv.Atoi(work)
				if err != nil {
					t.Fatal(err)
				}
				writes = append(writes, stalewriter.Record{Token: tokens[i], Value: value})
			}
			return int(d.number(t, "SELECT balance FROM accounts WHERE id = 1")), writes
		}
		return w
	}
	var ways []stalewriter.Way
	for _, k := range kinds[:3] {
		d := newDatabase(t, k)
		ways = append(ways, way(k.name, byGuard, d, d.dsn(t), d.dsn(t)))
	}
	d := newDatabase(t, kinds[1])
	ways = append(ways, way("Marks in a transaction of PostgreSQL", byRaise, d, d.dsn(t), d.dsn(t)))
	d = newDatabase(t, kinds[2])
	ways = append(ways, way("Column of MariaDB", byColumn, d, d.dsn(t), d.dsn(t)))
	first, second := onGalera(t, true)
	w := way("Galera", byGuard, first, galera[0].dsn(first.id), galera[1].dsn(first.id))
	second.caughtUpWith(t, first)
	read := w.Read
	w.Read = func(t *testing.T) (int, []stalewriter.Record) {
		first.caughtUpWith(t, second)
		return read(t)
	}
	stalewriter.Run(t, append(ways, w)...)
}

// dsn returns the data source name with which another process opens the database.
func (d *database) dsn(t *testing.T) string {
	t.Helper()
	switch d.dialect {
	case sqlfence.Postgres:
		return postgresDSN(d.id)
	case sqlfence.MySQL:
		return mariadb.dsn(d.id)
	}
	path := ""
	if err := d.db.QueryRow("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path); err != nil {
		t.Fatal(err)
	}
	return sqliteDSN(filepath.ToSlash(path))
}

func (s *server) dsn(name string) string {
	return "root@unix(" + s.socket() + ")/" + name + "?interpolateParams=true"
}
