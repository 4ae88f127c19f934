//go:build unix

// Pgx fences a transaction of its own, in PostgreSQL by pgx: sqlfence's Raise is its first statement, and what follows
// is written only by the newest holder of the lock.
//
//	go run ./examples/pgx
//	go run ./examples/pgx --dsn postgres://user@host/name --endpoints host1:2379,host2:2379
//
// The default is a temporary PostgreSQL, if it is installed (apt-get install postgresql). A withdraws from an account,
// loses the lock, and goes on all the same:
//
//	 time  who       what                                                                   token
//	2.87s  A         withdraws 10: the balance is 90                                            3
//	2.87s  A         loses its lease, and with it the lock                                      3
//	2.89s  B         withdraws 10: the balance is 80                                            7
//	2.89s  A         withdraws 10: REFUSED by Raise, which asks the lock (lost)                 3
//	2.89s  A         the same, paused after that: REFUSED by the database, mark is 7            3
//	2.89s  database  the balance is 80
//
// withdraw is the function to copy. In a database of yours the program creates a schema, and drops it again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

var dsn = flag.String("dsn", "", "database `URL`: postgres://… (default: a temporary PostgreSQL)")

func main() { demo.Main(run) }

// withdraw reads and writes in a transaction, for the newest holder of the account's lock only.
func withdraw(
	ctx context.Context, pool *pgxpool.Pool, marks *sqlfence.Marks, lk fencing.Holder, amount int,
) (balance int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // rolls back for an error
		// First: it compares the token with the mark of the resource, and keeps the mark's row locked until the end.
		if err := marks.Raise(ctx, sqlfence.PgxTx(tx), "accounts/7", lk); err != nil {
			return err // fencing.ErrStale: a newer holder has written
		}
		// Read after it. What was read before may be of before a newer holder's write.
		if err := tx.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance); err != nil {
			return err
		}
		if balance < amount {
			return fmt.Errorf("the balance is %d", balance)
		}
		balance -= amount
		if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = $1 WHERE id = 7", balance); err != nil {
			return err
		}
		return lk.Check() // last, right before the commit
	})
	// An error of the commit may mean that it is done, or will be, though not after a newer holder's write: to withdraw
	// once more might withdraw twice. Raise in a new transaction, and read there what happened.
	return balance, err
}

func run(ctx context.Context, d *demo.Demo) error {
	if *dsn == "" {
		temporary, stop, err := startPostgres(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		defer stop()
		*dsn = temporary
	}
	pool, drop, err := open(ctx, *dsn)
	if err != nil {
		return err
	}
	defer drop()
	marks, err := sqlfence.NewMarks(sqlfence.Postgres, sqlfence.Options{
		Auditor: audit.Func(func(context.Context, audit.Record) {}), // the rows tell it; the default logs refusals
	})
	if err != nil {
		return err
	}

	// A and B would be two processes.
	var locks [2]*locker.Lock
	d.Header()
	for i, name := range []string{"A", "B"} {
		sess, err := session.New(ctx, d.Client, session.Options{Owner: name, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer sess.Close(ctx)
		if locks[i], err = locker.NewMutex(sess, "examples/accounts/7").Lock(ctx); err != nil {
			return err
		}
		balance, err := withdraw(ctx, pool, marks, locks[i], 10)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		d.Row(name, locks[i].Token(), demo.Plain, "withdraws 10: the balance is %d", balance)
		if name == "A" { // as if it were cut off for longer than its TTL
			if _, err := d.Client.Revoke(ctx, sess.Lease()); err != nil {
				return err
			}
			<-locks[i].Done()
			d.Row(name, locks[i].Token(), demo.Bad, "loses its lease, and with it the lock")
		}
	}

	if _, err := withdraw(ctx, pool, marks, locks[0], 10); !errors.Is(err, holdfast.ErrLost) {
		return fmt.Errorf("A without the lock: %w", err)
	}
	d.Row("A", locks[0].Token(), demo.Good, "withdraws 10: REFUSED by Raise, which asks the lock (lost)")
	_, err = withdraw(ctx, pool, marks, unaware{locks[0]}, 10)
	var below *fencing.MarkError
	if !errors.As(err, &below) {
		return fmt.Errorf("A, unaware: %w", err)
	}
	d.Row("A", locks[0].Token(), demo.Good, "the same, paused after that: REFUSED by the database, mark is %d", below.Mark)
	var balance int
	if err := pool.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = 7").Scan(&balance); err != nil {
		return err
	}
	d.Row("database", 0, demo.Good, "the balance is %d", balance)
	return nil
}

// unaware is a lock as a process sees it that is paused right after a Check: that said that it is held.
type unaware struct{ *locker.Lock }

func (unaware) Check() error { return nil }

// open connects, and creates a schema with an account and the table of the marks. drop drops it and disconnects.
func open(ctx context.Context, dsn string) (pool *pgxpool.Pool, drop func(), err error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	schema := fmt.Sprintf("holdfast_example_%08d", rand.IntN(1e8))
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, nil, err
	}
	drop = func() {
		_, _ = pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
		pool.Close()
	}
	statements := []string{
		"CREATE SCHEMA " + schema,
		"CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
		"INSERT INTO accounts VALUES (7, 100)",
	}
	// One statement in each file. A migration tool would run them; Guard.EnsureSchema does for database/sql.
	migrations := sqlfence.Migrations(sqlfence.Postgres)
	files, err := fs.Glob(migrations, "*.up.sql")
	for _, file := range files {
		text, err := fs.ReadFile(migrations, file)
		if err != nil {
			return nil, nil, err
		}
		statements = append(statements, string(text))
	}
	for _, statement := range statements {
		if _, err = pool.Exec(ctx, statement); err != nil {
			drop()
			return nil, nil, err
		}
	}
	return pool, drop, err
}
