//go:build unix

// Sqlfence shows how a database refuses the late UPDATE of a paused worker:
//
//	go run ./examples/sqlfence
//	go run ./examples/sqlfence --dsn postgres://user@host/name
//	go run ./examples/sqlfence --dsn 'mysql://user:password@tcp(host:3306)/name'
//	go run ./examples/sqlfence --endpoints host1:2379,host2:2379
//
// Two worker processes compete for one lock. The holder writes to two rows, to one of them through a guard. It is
// stopped (SIGSTOP) until its lease has expired in etcd and the other worker has written. Then it is continued
// (SIGCONT), and writes.
//
// The default database is a temporary SQLite file. In a database of yours the program creates two tables and drops them
// again. Without --endpoints it runs its own etcd. It exits with code 0 only if it observed every step.
//
// This file has the steps, worker.go the code of the workers, database.go their SQL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
)

var dsn = flag.String("dsn", "",
	"database `URL`: postgres://…, mysql://…, sqlite://PATH (default: a temporary SQLite file)")

func main() {
	child.Main(work) // runs a worker, if this process is one, and exits
	demo.Main(run)
}

// run plays the story, and cleans up however it ended.
func run(ctx context.Context, d *demo.Demo) (err error) {
	s := &story{Demo: d, job: job{Endpoints: d.Endpoints, DSN: *dsn, ID: fmt.Sprintf("%08d", rand.IntN(1e8))}}
	if s.job.DSN == "" {
		dir, err := os.MkdirTemp("", "sqlfence-example")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.job.DSN = "sqlite://" + filepath.Join(dir, "work.db")
	}
	if s.db, err = open(s.job.DSN, s.job.ID); err != nil {
		return err
	}
	defer s.db.Close()
	defer func() {
		err = errors.Join(child.KillAll(err, s.a, s.b), s.cleanUp(ctx))
	}()
	d.Print(demo.Plain, "One lock, two processes, and a pause longer than the lease (TTL %v).", demo.TTL)
	d.Print(demo.Plain, "guarded: a row updated through a sqlfence.Guard. unguarded: a row updated without it.")
	d.Print(demo.Plain, "")
	d.Header()
	return d.Play(ctx, s.steps())
}

// story is what the steps share.
type story struct {
	*demo.Demo
	job    job
	db     *database
	a, b   *worker // nil until started
	queue  string  // prefix of the lock's entries in etcd
	tokens [2]holdfast.Token
}

type worker = child.Child[event]

func (s *story) steps() []demo.Step {
	return []demo.Step{
		{Name: "the tables are created", Observe: s.createTables},
		{Name: "A acquires the lock", Observe: s.firstAcquires},
		{Name: "A writes both rows", Observe: s.firstWrites},
		{Name: "B waits behind A", Observe: s.secondWaits},
		{Name: "A is stopped", Observe: s.firstIsStopped},
		{Name: "B acquires the lock after A's lease has expired, with a larger token", Observe: s.secondAcquires},
		{Name: "B writes both rows", Observe: s.secondWrites},
		{Name: "A continues", Observe: s.firstContinues},
		{Name: "A's guarded UPDATE is refused without a query", Observe: s.guardRefuses},
		{Name: "A's guarded UPDATE, sent without a Check, is refused by the database", Observe: s.databaseRefuses},
		{Name: "A's plain UPDATE is accepted", Observe: s.plainUpdateIsAccepted},
		{Name: "the guarded row still has B's value, and the mark is B's token", Observe: s.guardedRowIsIntact},
		{Name: "the unguarded row has lost B's value", Observe: s.unguardedRowIsOverwritten},
		{Name: "both workers exit without an error", Observe: s.workersExit},
	}
}

func (s *story) createTables(ctx context.Context) error {
	if err := s.db.create(ctx); err != nil {
		return err
	}
	s.Row("parent", 0, demo.Plain, "creates a table for the work and one for the marks (%s)", s.db.dialect)
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
	s.Row("A", ev.Token, demo.Plain, "process %d acquires the lock", s.a.PID())
	return nil
}

func (s *story) firstWrites(ctx context.Context) error { return s.writes(ctx, s.a, s.tokens[0]) }

func (s *story) writes(ctx context.Context, p *worker, token holdfast.Token) error {
	if _, err := p.Await(ctx, wrote); err != nil {
		return err
	}
	s.Row(p.Name, token, demo.Plain, "UPDATE guarded and unguarded: %q", value(p.Name))
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
	if err := s.WaitForKeys(ctx, s.queue, 2); err != nil {
		return err
	}
	s.Row("B", 0, demo.Plain, "process %d waits behind A", s.b.PID())
	return nil
}

func (s *story) firstIsStopped(ctx context.Context) error {
	if err := s.a.Stop(ctx); err != nil {
		return err
	}
	s.Row("parent", 0, demo.Dim, "SIGSTOP to A: the whole process stops")
	return nil
}

// secondAcquires is the only step that takes long: until etcd expires A's lease.
func (s *story) secondAcquires(ctx context.Context) error {
	ev, err := s.b.Await(ctx, acquired)
	if err != nil {
		return err
	}
	if s.tokens[1] = ev.Token; s.tokens[1] <= s.tokens[0] {
		return fmt.Errorf("its token is %v, A's was %v", s.tokens[1], s.tokens[0])
	}
	s.Row("B", ev.Token, demo.Good, "acquires the lock: A's lease has expired in etcd")
	return nil
}

func (s *story) secondWrites(ctx context.Context) error { return s.writes(ctx, s.b, s.tokens[1]) }

func (s *story) firstContinues(context.Context) error {
	if err := errors.Join(s.a.Tell(resume), s.a.Continue()); err != nil {
		return err
	}
	s.Row("parent", 0, demo.Dim, "SIGCONT to A: it continues where it was, unaware of the pause")
	return nil
}

func (s *story) guardRefuses(ctx context.Context) error {
	ev, err := s.a.Await(ctx, lateGuarded)
	if err != nil {
		return err
	}
	if !ev.Lost || ev.Stale {
		return fmt.Errorf("it reports %q", ev.Error)
	}
	s.Row("A", s.tokens[0], demo.Good, "UPDATE guarded: REFUSED by the guard (lost); nothing is sent")
	return nil
}

func (s *story) databaseRefuses(ctx context.Context) error {
	ev, err := s.a.Await(ctx, lateUnchecked)
	if err != nil {
		return err
	}
	if !ev.Stale || ev.Mark != s.tokens[1] {
		return fmt.Errorf("it reports %q", ev.Error)
	}
	s.Row("A", s.tokens[0], demo.Good, "the same without its Check: REFUSED by the database, mark is %v", ev.Mark)
	return nil
}

func (s *story) plainUpdateIsAccepted(ctx context.Context) error {
	ev, err := s.a.Await(ctx, latePlainly)
	if err != nil {
		return err
	}
	if ev.Error != "" {
		return errors.New(ev.Error)
	}
	s.Row("A", 0, demo.Bad, "UPDATE unguarded: ACCEPTED, no token is compared")
	return nil
}

func (s *story) guardedRowIsIntact(ctx context.Context) error {
	mark, err := s.db.mark(ctx)
	if err != nil {
		return err
	}
	if mark != s.tokens[1] {
		return fmt.Errorf("the mark is %v, B's token is %v", mark, s.tokens[1])
	}
	return s.readBack(ctx, guarded, value("B"), demo.Good, "the newer holder's value is intact")
}

func (s *story) unguardedRowIsOverwritten(ctx context.Context) error {
	return s.readBack(ctx, unguarded, lateValue("A"), demo.Bad, "overwritten by the stale holder")
}

func (s *story) readBack(ctx context.Context, name, want string, tone demo.Tone, meaning string) error {
	got, err := s.db.read(ctx, name)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("read %q, want %q", got, want)
	}
	s.Row("database", 0, tone, "%s = %q: %s", name, got, meaning)
	return nil
}

func (s *story) workersExit(ctx context.Context) error {
	if err := s.b.Tell(resume); err != nil {
		return err
	}
	for _, p := range []*worker{s.a, s.b} {
		ev, err := p.Await(ctx, released)
		if err != nil {
			return err
		}
		if lost := p == s.a; ev.Lost != lost {
			return fmt.Errorf("worker %s: Unlock reports %q", p.Name, ev.Error)
		}
		if err := p.Exited(ctx); err != nil {
			return err
		}
	}
	s.Row("parent", 0, demo.Dim, "both workers have exited")
	return nil
}

// cleanUp drops the tables of this run. The entries of killed workers expire with their leases.
func (s *story) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.db.drop(ctx); err != nil {
		return fmt.Errorf("tables %s and %s may remain: %w", s.db.table, s.db.marks, err)
	}
	return nil
}
