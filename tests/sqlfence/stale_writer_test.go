//go:build linux

package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Two processes compete for a lock. The holder reads and writes until the database
// refuses it. The lock changes hands only because the holder is stopped at a random
// moment for longer than its lease lives. For more rounds:
//
//	go test -race ./tests/sqlfence -run StaleWriter -pauses=200 -timeout 30m
var pauses = flag.Int("pauses", 7, "how often TestStaleWriterOfAStoppedProcessIsRefused stops a process, per database")

const writerTTL = time.Second

// writerJob tells a process what to do.
type writerJob struct {
	Endpoints   []string // of etcd
	Driver, DSN string
	Dialect     sqlfence.Dialect
	Name        string // of lock and resource
}

// writerEvent is what a process reports.
type writerEvent struct {
	Token  fencing.Token `json:",omitzero"`
	Writes int           // isDone: how many succeeded
}

const (
	hasWritten = "has written" // for the first time with this token
	isRefused  = "is refused"
	isDone     = "is done" // refused below lastToken
)

const lastToken = fencing.Token(1 << 50)

func beChild() { child.Main(writeUntilRefused) }

func writeUntilRefused(ctx context.Context, _ string, j writerJob, parent *child.Parent[writerEvent]) error {
	db, err := sql.Open(j.Driver, j.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	g, err := sqlfence.New(db, j.Dialect, &sqlfence.Options{Auditor: quiet})
	if err != nil {
		return err
	}
	cli, err := clientv3.New(session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, &session.Options{TTL: writerTTL})
	if err != nil {
		return err
	}
	d := &database{kind: kind{dialect: j.Dialect}}
	writes := 0
	for {
		lk, err := locker.NewMutex(sess, j.Name).Lock(ctx)
		if errors.Is(err, holdfast.ErrLost) { // stopped during the wait
			continue
		}
		if err != nil {
			return err
		}
		for first := true; ; first = false {
			err := g.Do(ctx, j.Name, unaware{lk}, d.increment(j.Name, lk.Token()))
			if below, ok := errors.AsType[*fencing.MarkError](err); ok && below.Mark == lastToken {
				parent.Say(isDone, writerEvent{Writes: writes})
				_ = lk.Unlock(ctx) // lets the other process in
				return nil
			}
			if errors.Is(err, fencing.ErrStale) {
				break
			}
			if err != nil {
				return err
			}
			if writes++; first {
				parent.Say(hasWritten, writerEvent{Token: lk.Token()})
			}
		}
		_ = lk.Unlock(ctx) // returns that the lock was lost
		parent.Say(isRefused, writerEvent{Token: lk.Token()})
	}
}

// increment reads and writes a counter in one transaction, and adds a row to the history.
func (d *database) increment(resource string, token fencing.Token) func(context.Context, *sql.Tx) error {
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
		return d.write(resource, token, fmt.Sprint(balance+1))(ctx, tx)
	}
}

func TestStaleWriterOfAStoppedProcessIsRefused(t *testing.T) {
	srv := etcdtest.Start(t)
	t.Run("each", func(t *testing.T) {
		for _, k := range kinds[:3] {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, k)
				d.guard(t, nil)
				d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 0)")
				driver, dsn := d.dsn(t)
				j := writerJob{srv.Endpoints(), driver, dsn, k.dialect, "job " + d.id}
				if err := pauseWriters(t, d, j); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

func pauseWriters(t *testing.T, d *database, j writerJob) (err error) {
	timeout := time.Duration(*pauses)*10*time.Second + time.Minute
	ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the test takes too long"))
	defer cancel()
	holder, err := child.Start[writerEvent]("A", j)
	if err != nil {
		return err
	}
	defer func() { err = child.KillAll(err, holder) }()
	if _, err := holder.Await(ctx, hasWritten); err != nil {
		return err
	}
	waiter, err := child.Start[writerEvent]("B", j)
	if err != nil {
		return err
	}
	defer func() { err = child.KillAll(err, waiter) }()

	within := 0
	for range *pauses {
		moment := time.NewTimer(rand.N(60 * time.Millisecond)) // the fault comes at a random moment
		<-moment.C
		if err := holder.Stop(ctx); err != nil {
			return err
		}
		// If the holder was stopped during its transaction, the waiter's write waits.
		soon, cancel := context.WithTimeout(ctx, 2*writerTTL)
		_, waits := waiter.Await(soon, hasWritten)
		cancel()
		if err := holder.Continue(); err != nil {
			return err
		}
		if waits != nil {
			within++
			if _, err := waiter.Await(ctx, hasWritten); err != nil {
				return err
			}
		}
		if _, err := holder.Await(ctx, isRefused); err != nil {
			return err
		}
		holder, waiter = waiter, holder
	}
	// A last token, above those of both.
	last := fencing.Claim{Name: j.Name, Token: lastToken}
	if err := d.guard(t, nil).DoClaim(ctx, j.Name, last, d.increment(j.Name, lastToken)); err != nil {
		return err
	}
	sum := 1
	for _, p := range []*child.Child[writerEvent]{holder, waiter} {
		ev, err := p.Await(ctx, isDone)
		for i := 0; err != nil && i < 4; i++ { // it may have reported something else before
			ev, err = p.Await(ctx, isDone)
		}
		if err != nil {
			return err
		}
		sum += ev.Writes
	}
	works, tokens := d.works(t, j.Name)
	for i := range tokens {
		if i > 0 && tokens[i] < tokens[i-1] {
			t.Errorf("token %v has written after %v", tokens[i], tokens[i-1])
		}
		if works[i] != fmt.Sprint(i+1) {
			t.Errorf("write %d set the counter to %s", i+1, works[i])
		}
	}
	counter := d.number(t, "SELECT balance FROM accounts WHERE id = 1")
	if int(counter) != sum || len(works) != sum {
		t.Errorf("%d writes succeeded, the counter is %d after %d", sum, counter, len(works))
	}
	t.Logf("%d pauses, %d of them during a transaction; %d writes", *pauses, within, sum)
	return nil
}

// dsn returns the data source name with which another process opens the database.
func (d *database) dsn(t *testing.T) (driver, dsn string) {
	t.Helper()
	switch d.dialect {
	case sqlfence.Postgres:
		return "pgx", postgresDSN(d.id)
	case sqlfence.MySQL:
		return "mysql", "root@unix(" + mariadb.socket() + ")/" + d.id
	}
	path := ""
	if err := d.db.QueryRow("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path); err != nil {
		t.Fatal(err)
	}
	return "sqlite", sqliteDSN(filepath.ToSlash(path))
}
