//go:build unix

// Quickstart shows a lock being lost to a paused process, and what a fencing
// token does about it:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart --endpoints host1:2379,host2:2379
//
// Two worker processes contend for one lock. The holder is stopped (SIGSTOP)
// until etcd has expired its lease and the other worker holds the lock. Then it
// goes on (SIGCONT), and writes.
//
// Without --endpoints an etcd runs inside this process, for as long as the story
// takes. The exit code is 0 only if every step was observed.
//
// main.go is the story, worker.go what the workers do, timeline.go prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/session"
)

// ttl is short so that the story is. The default is session.DefaultTTL.
const ttl = 2 * time.Second

func main() {
	child.Main(work) // in a worker; that is all it does
	endpoints := flag.String("endpoints", "", "comma-separated `addresses` of an etcd cluster to use (default: an embedded etcd)")
	patience := flag.Duration("patience", 10*time.Second, "how long to wait for each step")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *endpoints, *patience, newTimeline(os.Stdout)); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run sets the stage, has the story told, and clears everything away again,
// however it ended.
func run(ctx context.Context, endpoints string, patience time.Duration, out *timeline) (err error) {
	id := fmt.Sprintf("quickstart/%08d", rand.IntN(1e8))
	s := &story{out: out, job: job{Lock: id, Guarded: id + "/guarded", Unguarded: id + "/unguarded"}}

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
	s.cli, err = clientv3.New(session.ClientConfig(s.job.Endpoints...))
	if err != nil {
		return err
	}
	defer s.cli.Close()

	defer func() {
		err = errors.Join(child.KillAll(err, s.a, s.b), s.cleanUp(ctx))
	}()
	out.begin()
	steps := s.steps()
	for i, step := range steps {
		if err := within(ctx, patience, step.observe); err != nil {
			return fmt.Errorf("step %d of %d was not observed: %s: %w", i+1, len(steps), step.name, err)
		}
	}
	out.end(len(steps), s.results)
	return nil
}

func within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("waited for %v", d))
	defer cancel()
	return f(ctx)
}

// story is what its steps share.
type story struct {
	out *timeline
	job job
	cli *clientv3.Client

	a, b    *worker // nil before they are started
	queue   string  // prefix of the lock's entries in etcd
	tokens  [2]fencing.Token
	results []result
}

type worker = child.Child[event]

// step is one thing that must be seen.
type step struct {
	name    string
	observe func(context.Context) error
}

func (s *story) steps() []step {
	return []step{
		{"etcd answers", s.etcdAnswers},
		{"A acquires the lock", s.firstAcquires},
		{"A writes both keys", s.firstWrites},
		{"B waits behind A", s.secondWaits},
		{"A is stopped", s.firstIsStopped},
		{"B acquires the lock when A's lease has expired, with a larger token", s.secondAcquires},
		{"B writes both keys", s.secondWrites},
		{"A goes on", s.firstGoesOn},
		{"A's first Check says that the lock is lost", s.firstIsTold},
		{"A's guarded write is refused by its writer", s.writerRefuses},
		{"A's guarded write, had it passed the Check, is refused by etcd", s.etcdRefuses},
		{"A's plain write is accepted", s.plainWriteIsAccepted},
		{"the guarded key still has B's value", s.guardedKeyStands},
		{"the unguarded key has lost B's value", s.unguardedKeyIsOverwritten},
		{"B holds to the end and releases", s.secondReleases},
		{"nothing of the lock is left in etcd", s.nothingIsLeft},
	}
}

func (s *story) etcdAnswers(ctx context.Context) error {
	_, err := s.cli.Get(ctx, s.job.Guarded)
	if err != nil {
		return fmt.Errorf("endpoints %s: %w", strings.Join(s.job.Endpoints, ","), err)
	}
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
	s.tokens[0] = ev.Token
	s.queue = path.Dir(ev.Entry) + "/"
	s.out.row("A", ev.Token, plain, "process %d acquires the lock", s.a.PID())
	return nil
}

func (s *story) firstWrites(ctx context.Context) error { return s.writes(ctx, s.a, s.tokens[0]) }

func (s *story) writes(ctx context.Context, p *worker, token fencing.Token) error {
	if _, err := p.Await(ctx, wrote); err != nil {
		return err
	}
	s.out.row(p.Name, token, plain, "writes guarded = %q and unguarded = %q", value(p.Name), value(p.Name))
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
			s.out.row("B", 0, plain, "process %d asks for the lock and waits behind A", s.b.PID())
			return nil
		}
	}
	return context.Cause(ctx)
}

func (s *story) firstIsStopped(ctx context.Context) error {
	if err := s.a.Stop(ctx); err != nil {
		return err
	}
	s.out.row("parent", 0, dim, "SIGSTOP to A: all of it stands still, its renewals too")
	return nil
}

// secondAcquires is the one step that takes time: until etcd expires A's lease.
func (s *story) secondAcquires(ctx context.Context) error {
	ev, err := s.b.Await(ctx, acquired)
	if err != nil {
		return err
	}
	s.tokens[1] = ev.Token
	if s.tokens[1] <= s.tokens[0] {
		return fmt.Errorf("its token is %v, A's was %v", s.tokens[1], s.tokens[0])
	}
	s.out.row("B", ev.Token, good, "acquires the lock: A's lease has expired in etcd")
	return nil
}

func (s *story) secondWrites(ctx context.Context) error { return s.writes(ctx, s.b, s.tokens[1]) }

func (s *story) firstGoesOn(context.Context) error {
	if err := errors.Join(s.a.Tell(goOn), s.a.Continue()); err != nil {
		return err
	}
	s.out.row("parent", 0, dim, "SIGCONT to A: it goes on as if nothing had happened")
	return nil
}

func (s *story) firstIsTold(ctx context.Context) error {
	ev, err := s.a.Await(ctx, checked)
	if err != nil {
		return err
	}
	if ev.Lost != holdfast.CauseExpired.String() {
		return fmt.Errorf("it says %v", ev)
	}
	s.out.row("A", s.tokens[0], good, "Check: lost (%s)", ev.Lost)
	return nil
}

func (s *story) writerRefuses(ctx context.Context) error {
	ev, err := s.a.Await(ctx, wroteGuarded)
	if err != nil {
		return err
	}
	if ev.Lost == "" || ev.Stale {
		return fmt.Errorf("it says %v", ev)
	}
	s.out.row("A", s.tokens[0], good, "writes guarded: REFUSED by its writer (lost), nothing is sent")
	return nil
}

func (s *story) etcdRefuses(ctx context.Context) error {
	ev, err := s.a.Await(ctx, wroteBlindly)
	if err != nil {
		return err
	}
	if !ev.Stale {
		return fmt.Errorf("it says %v", ev)
	}
	s.out.row("A", s.tokens[0], good, "the same, paused only after the Check: REFUSED by etcd (ErrStale)")
	return nil
}

func (s *story) plainWriteIsAccepted(ctx context.Context) error {
	ev, err := s.a.Await(ctx, wrotePlainly)
	if err != nil {
		return err
	}
	if ev.Error != "" {
		return errors.New(ev.Error)
	}
	s.out.row("A", 0, bad, "writes unguarded = %q: ACCEPTED, nobody compares", lateValue("A"))
	return nil
}

func (s *story) guardedKeyStands(ctx context.Context) error {
	return s.readBack(ctx, "guarded", s.job.Guarded, value("B"), good, "fenced: the newer holder's value stands")
}

func (s *story) unguardedKeyIsOverwritten(ctx context.Context) error {
	return s.readBack(ctx, "unguarded", s.job.Unguarded, lateValue("A"), bad, "not fenced: the stale holder has overwritten it")
}

func (s *story) readBack(ctx context.Context, name, key, want string, tone tone, meaning string) error {
	resp, err := s.cli.Get(ctx, key)
	if err != nil {
		return err
	}
	if len(resp.Kvs) == 0 || string(resp.Kvs[0].Value) != want {
		return fmt.Errorf("read %v, want %q", resp.Kvs, want)
	}
	s.out.row("etcd", 0, tone, "read back %s = %q", name, want)
	s.results = append(s.results, result{name, want, tone, meaning})
	return nil
}

func (s *story) secondReleases(ctx context.Context) error {
	if err := s.b.Tell(goOn); err != nil {
		return err
	}
	for _, what := range []string{checked, released} {
		ev, err := s.b.Await(ctx, what)
		if err != nil {
			return err
		}
		if ev.Error != "" {
			return fmt.Errorf("%s: %s", what, ev.Error)
		}
	}
	s.out.row("B", s.tokens[1], plain, "Check: held to the end; unlocks")
	return nil
}

func (s *story) nothingIsLeft(ctx context.Context) error {
	ev, err := s.a.Await(ctx, released)
	if err != nil {
		return err
	}
	if ev.Lost == "" {
		return fmt.Errorf("worker A: Unlock says %v", ev)
	}
	for _, p := range []*worker{s.a, s.b} {
		if err := p.Exited(ctx); err != nil {
			return err
		}
	}
	entries, err := s.cli.Get(ctx, s.queue, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	if len(entries.Kvs) > 0 {
		return fmt.Errorf("found %v", entries.Kvs)
	}
	s.out.row("parent", 0, dim, "both workers have ended; the lock's queue in etcd is empty")
	return nil
}

// cleanUp deletes the keys of this run, also when it was interrupted. Entries of
// workers that had to be killed go with their leases.
func (s *story) cleanUp(ctx context.Context) error {
	if s.a == nil {
		return nil // nothing was written
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, err := s.cli.Txn(ctx).Then(clientv3.OpDelete(s.job.Guarded), clientv3.OpDelete(s.job.Unguarded)).Commit()
	if err != nil {
		return fmt.Errorf("the keys under %s/ are left behind: %w", s.job.Lock, err)
	}
	return nil
}

// value and lateValue are what a worker writes while it holds, and after.
func value(name string) string     { return "from " + name }
func lateValue(name string) string { return "from " + name + ", too late" }
