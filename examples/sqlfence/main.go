//go:build unix

// Sqlfence shows a paused worker's late UPDATE being refused by the database:
//
//	go run ./examples/sqlfence
//	go run ./examples/sqlfence --dsn postgres://user@host/name
//	go run ./examples/sqlfence --dsn 'mysql://user:password@tcp(host:3306)/name'
//	go run ./examples/sqlfence --endpoints host1:2379,host2:2379
//
// Two worker processes contend for one lock, and write under it to two rows, one
// of them through a guard. The holder is stopped (SIGSTOP) until etcd has expired
// its lease and the other worker has written. Then it goes on (SIGCONT), and
// writes.
//
// By default the database is a SQLite file that is deleted afterwards, and an
// etcd runs inside this process. In a database of yours it makes two tables and
// drops them again. The exit code is 0 only if every step was observed.
//
// main.go is the story, worker.go what the workers do, database.go what they
// write.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/session"
)

// ttl is short so that the story is. The default is session.DefaultTTL.
const ttl = 2 * time.Second

func main() {
	child.Main(work) // in a worker; that is all it does
	dsn := flag.String("dsn", "", "`URL` of the database: postgres://…, mysql://…, sqlite://PATH (default: a temporary SQLite file)")
	endpoints := flag.String("endpoints", "", "comma-separated `addresses` of an etcd cluster to use (default: an embedded etcd)")
	patience := flag.Duration("patience", 10*time.Second, "how long to wait for each step")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dsn, *endpoints, *patience, os.Stdout); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(os.Stderr, "sqlfence:", err)
		os.Exit(1)
	}
}

// run sets the stage, has the story told, and clears everything away again,
// however it ended.
func run(ctx context.Context, dsn, endpoints string, patience time.Duration, out io.Writer) (err error) {
	s := &story{out: out, start: time.Now(), job: job{DSN: dsn, ID: fmt.Sprintf("%08d", rand.IntN(1e8))}}
	if dsn == "" {
		dir, err := os.MkdirTemp("", "sqlfence-example")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.job.DSN = "sqlite://" + filepath.Join(dir, "work.db")
	}
	if endpoints != "" {
		s.job.Endpoints = strings.Split(endpoints, ",")
	} else {
		srv, err := etcdtest.New(nil)
		if err != nil {
			return err
		}
		defer srv.Close()
		s.job.Endpoints = srv.Endpoints()
	}
	if s.cli, err = clientv3.New(session.ClientConfig(s.job.Endpoints...)); err != nil {
		return err
	}
	defer s.cli.Close()
	if s.d, err = open(s.job.DSN, s.job.ID); err != nil {
		return err
	}
	defer s.d.db.Close()

	defer func() {
		err = errors.Join(child.KillAll(err, s.a, s.b), s.cleanUp(ctx))
	}()
	steps := s.steps()
	for i, step := range steps {
		if err := within(ctx, patience, step.observe); err != nil {
			return fmt.Errorf("step %d of %d was not observed: %s: %w", i+1, len(steps), step.name, err)
		}
	}
	fmt.Fprintf(out, "\nAll %d steps were observed, in %.1f s.\n", len(steps), time.Since(s.start).Seconds())
	return nil
}

func within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("waited for %v", d))
	defer cancel()
	return f(ctx)
}

// story is what its steps share.
type story struct {
	out   io.Writer
	start time.Time
	job   job
	cli   *clientv3.Client
	d     *database

	a, b   *worker // nil before they are started
	queue  string  // prefix of the lock's entries in etcd
	tokens [2]fencing.Token
}

type worker = child.Child[event]

// row prints one thing that was observed now.
func (s *story) row(who, format string, args ...any) {
	fmt.Fprintf(s.out, "%6.2fs  %-8s  %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// step is one thing that must be seen.
type step struct {
	name    string
	observe func(context.Context) error
}

func (s *story) steps() []step {
	return []step{
		{"the database takes the tables", s.tablesAreMade},
		{"A acquires the lock", s.firstAcquires},
		{"A writes both rows", s.firstWrites},
		{"B waits behind A", s.secondWaits},
		{"A is stopped", s.firstIsStopped},
		{"B acquires the lock when A's lease has expired, with a larger token", s.secondAcquires},
		{"B writes both rows", s.secondWrites},
		{"A goes on", s.firstGoesOn},
		{"A's guarded UPDATE is refused before a query, as the lock is lost", s.guardRefuses},
		{"A's guarded UPDATE, had it passed the Check, is refused by the database", s.databaseRefuses},
		{"A's plain UPDATE is carried out", s.plainUpdateIsCarriedOut},
		{"the guarded row still has B's value, and the mark is B's token", s.guardedRowStands},
		{"the unguarded row has lost B's value", s.unguardedRowIsOverwritten},
		{"both workers end well", s.workersEnd},
	}
}

func (s *story) tablesAreMade(ctx context.Context) error {
	if err := s.d.create(ctx); err != nil {
		return err
	}
	s.row("parent", "the table of work and that of marks are in the %s database", s.d.dialect)
	return nil
}

func (s *story) firstAcquires(ctx context.Context) (err error) {
	if s.a, err = child.Start[event]("A", s.job); err != nil {
		return err
	}
	if _, err := s.a.Await(ctx, waits); err != nil {
		return err
	}
	ev, err := s.a.Await(ctx, acquired)
	if err != nil {
		return err
	}
	s.tokens[0], s.queue = ev.Token, path.Dir(ev.Entry)+"/"
	s.row("A", "process %d acquires the lock with token %v", s.a.PID(), ev.Token)
	return nil
}

func (s *story) firstWrites(ctx context.Context) error { return s.writes(ctx, s.a) }

func (s *story) writes(ctx context.Context, p *worker) error {
	if _, err := p.Await(ctx, wrote); err != nil {
		return err
	}
	s.row(p.Name, "UPDATE guarded and unguarded: %q", value(p.Name))
	return nil
}

// secondWaits looks for B's entry in etcd, behind A's.
func (s *story) secondWaits(ctx context.Context) (err error) {
	if s.b, err = child.Start[event]("B", s.job); err != nil {
		return err
	}
	if _, err := s.b.Await(ctx, waits); err != nil {
		return err
	}
	// The watch is armed before the first look, so that no change is missed.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for change := range s.cli.Watch(ctx, s.queue, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if err := change.Err(); err != nil {
			return err
		}
		entries, err := s.cli.Get(ctx, s.queue, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if entries.Count == 2 {
			s.row("B", "process %d waits behind A", s.b.PID())
			return nil
		}
	}
	return context.Cause(ctx)
}

func (s *story) firstIsStopped(ctx context.Context) error {
	if err := s.a.Stop(ctx); err != nil {
		return err
	}
	s.row("parent", "SIGSTOP to A: all of it stands still")
	return nil
}

// secondAcquires is the one step that takes time: until etcd expires A's lease.
func (s *story) secondAcquires(ctx context.Context) error {
	ev, err := s.b.Await(ctx, acquired)
	if err != nil {
		return err
	}
	if s.tokens[1] = ev.Token; s.tokens[1] <= s.tokens[0] {
		return fmt.Errorf("its token is %v, A's was %v", s.tokens[1], s.tokens[0])
	}
	s.row("B", "acquires the lock with token %v: A's lease has expired", ev.Token)
	return nil
}

func (s *story) secondWrites(ctx context.Context) error { return s.writes(ctx, s.b) }

func (s *story) firstGoesOn(context.Context) error {
	if err := errors.Join(s.a.Tell(goOn), s.a.Continue()); err != nil {
		return err
	}
	s.row("parent", "SIGCONT to A: it goes on as if nothing had happened")
	return nil
}

func (s *story) guardRefuses(ctx context.Context) error {
	ev, err := s.a.Await(ctx, lateGuarded)
	if err != nil {
		return err
	}
	if !ev.Lost || ev.Stale {
		return fmt.Errorf("it says %q", ev.Error)
	}
	s.row("A", "UPDATE guarded: REFUSED, the lock is lost; no query was made")
	return nil
}

func (s *story) databaseRefuses(ctx context.Context) error {
	ev, err := s.a.Await(ctx, lateBlindly)
	if err != nil {
		return err
	}
	if !ev.Stale || ev.Mark != s.tokens[1] {
		return fmt.Errorf("it says %q", ev.Error)
	}
	s.row("A", "the same, paused only after the Check: REFUSED by the database, token %v is below the mark %v", s.tokens[0], ev.Mark)
	return nil
}

func (s *story) plainUpdateIsCarriedOut(ctx context.Context) error {
	ev, err := s.a.Await(ctx, latePlainly)
	if err != nil {
		return err
	}
	if ev.Error != "" {
		return errors.New(ev.Error)
	}
	s.row("A", "UPDATE unguarded: ACCEPTED, nobody compares")
	return nil
}

func (s *story) guardedRowStands(ctx context.Context) error {
	mark, err := s.d.mark(ctx)
	if err != nil {
		return err
	}
	if mark != s.tokens[1] {
		return fmt.Errorf("the mark is %v, B's token is %v", mark, s.tokens[1])
	}
	return s.readBack(ctx, guarded, value("B"), "the newer holder's value stands")
}

func (s *story) unguardedRowIsOverwritten(ctx context.Context) error {
	return s.readBack(ctx, unguarded, lateValue("A"), "the stale holder has overwritten it")
}

func (s *story) readBack(ctx context.Context, name, want, meaning string) error {
	got, err := s.d.read(ctx, name)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("read %q, want %q", got, want)
	}
	s.row("database", "%s = %q: %s", name, got, meaning)
	return nil
}

func (s *story) workersEnd(ctx context.Context) error {
	if err := s.b.Tell(goOn); err != nil {
		return err
	}
	for _, p := range []*worker{s.a, s.b} {
		ev, err := p.Await(ctx, workerIsDone)
		if err != nil {
			return err
		}
		if lost := p == s.a; ev.Lost != lost {
			return fmt.Errorf("worker %s: Unlock says %q", p.Name, ev.Error)
		}
		if err := p.Exited(ctx); err != nil {
			return err
		}
	}
	s.row("parent", "both workers have ended")
	return nil
}

// cleanUp drops the tables of this run, also when it was interrupted. Entries of
// workers that had to be killed go with their leases.
func (s *story) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.d.drop(ctx); err != nil {
		return fmt.Errorf("the tables %s and %s may be left behind: %w", s.d.table, s.d.marks, err)
	}
	return nil
}
