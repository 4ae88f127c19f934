//go:build unix

// Quickstart loses a lock to a paused process, and shows what a fencing token is for:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart --endpoints host1:2379,host2:2379
//
// Two worker processes compete for one lock. The holder is stopped (SIGSTOP) until its lease has expired in etcd and
// the other worker holds the lock. Then it is continued (SIGCONT), and writes.
//
// Without --endpoints the program runs its own etcd. It exits with code 0 only if it observed every step.
//
// This file has the steps, worker.go the code of the workers.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
)

func main() {
	child.Main(work) // runs a worker, if this process is one, and exits
	demo.Main(run)
}

// run plays the story, and cleans up however it ended.
func run(ctx context.Context, d *demo.Demo) (err error) {
	id := fmt.Sprintf("quickstart/%08d", rand.IntN(1e8))
	s := &story{Demo: d, job: job{
		Endpoints: d.Endpoints, Lock: id, Guarded: id + "/guarded", Unguarded: id + "/unguarded",
	}}
	defer func() {
		err = errors.Join(child.KillAll(err, s.a, s.b), s.cleanUp(ctx))
	}()
	d.Print(demo.Plain, "One lock, two processes, and a pause longer than the lease (TTL %v).", demo.TTL)
	d.Print(demo.Plain, "guarded: a key written through an etcdfence.Writer. unguarded: a key written by a plain Put.")
	d.Print(demo.Plain, "token: the fencing token of the writer's lock; each new holder's is larger.")
	d.Print(demo.Plain, "")
	d.Header()
	return d.Play(ctx, s.steps())
}

// story is what the steps share.
type story struct {
	*demo.Demo
	job    job
	a, b   *worker // nil until started
	queue  string  // prefix of the lock's entries in etcd
	tokens [2]holdfast.Token
}

type worker = child.Child[event]

func (s *story) steps() []demo.Step {
	return []demo.Step{
		{Name: "etcd answers", Observe: s.etcdAnswers},
		{Name: "A acquires the lock", Observe: s.firstAcquires},
		{Name: "A writes both keys", Observe: s.firstWrites},
		{Name: "B waits behind A", Observe: s.secondWaits},
		{Name: "A is stopped", Observe: s.firstIsStopped},
		{Name: "B acquires the lock after A's lease has expired, with a larger token", Observe: s.secondAcquires},
		{Name: "B writes both keys", Observe: s.secondWrites},
		{Name: "A continues", Observe: s.firstContinues},
		{Name: "A's first Check reports that the lock is lost", Observe: s.firstIsTold},
		{Name: "A's guarded write is refused by its writer", Observe: s.writerRefuses},
		{Name: "A's guarded write, sent without a Check, is refused by etcd", Observe: s.etcdRefuses},
		{Name: "A's plain write is accepted", Observe: s.plainWriteIsAccepted},
		{Name: "the guarded key still has B's value", Observe: s.guardedKeyIsIntact},
		{Name: "the unguarded key has lost B's value", Observe: s.unguardedKeyIsOverwritten},
		{Name: "B still holds the lock and releases it", Observe: s.secondReleases},
		{Name: "the lock leaves nothing in etcd", Observe: s.nothingIsLeft},
	}
}

func (s *story) etcdAnswers(ctx context.Context) error {
	_, err := s.Client.Get(ctx, s.job.Guarded)
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
	s.Row("A", ev.Token, demo.Plain, "process %d acquires the lock", s.a.PID())
	return nil
}

func (s *story) firstWrites(ctx context.Context) error { return s.writes(ctx, s.a, s.tokens[0]) }

func (s *story) writes(ctx context.Context, p *worker, token holdfast.Token) error {
	if _, err := p.Await(ctx, wrote); err != nil {
		return err
	}
	s.Row(p.Name, token, demo.Plain, "writes guarded = %q and unguarded = %q", value(p.Name), value(p.Name))
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
	s.Row("B", 0, demo.Plain, "process %d wants the lock and waits behind A", s.b.PID())
	return nil
}

func (s *story) firstIsStopped(ctx context.Context) error {
	if err := s.a.Stop(ctx); err != nil {
		return err
	}
	s.Row("parent", 0, demo.Dim, "SIGSTOP to A: the whole process stops, and with it the renewals")
	return nil
}

// secondAcquires is the only step that takes long: until etcd expires A's lease.
func (s *story) secondAcquires(ctx context.Context) error {
	ev, err := s.b.Await(ctx, acquired)
	if err != nil {
		return err
	}
	s.tokens[1] = ev.Token
	if s.tokens[1] <= s.tokens[0] {
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

func (s *story) firstIsTold(ctx context.Context) error {
	ev, err := s.a.Await(ctx, checked)
	if err != nil {
		return err
	}
	if ev.Lost != holdfast.CauseExpired.String() {
		return fmt.Errorf("it reports %v", ev)
	}
	s.Row("A", s.tokens[0], demo.Good, "Check: lost (%s)", ev.Lost)
	return nil
}

func (s *story) writerRefuses(ctx context.Context) error {
	ev, err := s.a.Await(ctx, wroteGuarded)
	if err != nil {
		return err
	}
	if ev.Lost == "" || ev.Stale {
		return fmt.Errorf("it reports %v", ev)
	}
	s.Row("A", s.tokens[0], demo.Good, "writes guarded: REFUSED by its writer (lost); nothing is sent")
	return nil
}

func (s *story) etcdRefuses(ctx context.Context) error {
	ev, err := s.a.Await(ctx, wroteUnchecked)
	if err != nil {
		return err
	}
	if !ev.Stale {
		return fmt.Errorf("it reports %v", ev)
	}
	s.Row("A", s.tokens[0], demo.Good, "the same without its Check: REFUSED by etcd (stale)")
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
	s.Row("A", 0, demo.Bad, "writes unguarded = %q: ACCEPTED, no token is compared", lateValue("A"))
	return nil
}

func (s *story) guardedKeyIsIntact(ctx context.Context) error {
	return s.readBack(ctx, "guarded", s.job.Guarded, value("B"), demo.Good, "the newer holder's value is intact")
}

func (s *story) unguardedKeyIsOverwritten(ctx context.Context) error {
	return s.readBack(ctx, "unguarded", s.job.Unguarded, lateValue("A"), demo.Bad, "overwritten by the stale holder")
}

func (s *story) readBack(ctx context.Context, name, key, want string, tone demo.Tone, meaning string) error {
	resp, err := s.Client.Get(ctx, key)
	if err != nil {
		return err
	}
	if len(resp.Kvs) == 0 || string(resp.Kvs[0].Value) != want {
		return fmt.Errorf("read %v, want %q", resp.Kvs, want)
	}
	s.Row("etcd", 0, tone, "%s = %q: %s", name, want, meaning)
	return nil
}

func (s *story) secondReleases(ctx context.Context) error {
	if err := s.b.Tell(resume); err != nil {
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
	s.Row("B", s.tokens[1], demo.Plain, "Check: still held; unlocks")
	return nil
}

func (s *story) nothingIsLeft(ctx context.Context) error {
	ev, err := s.a.Await(ctx, released)
	if err != nil {
		return err
	}
	if ev.Lost == "" {
		return fmt.Errorf("the Unlock of A reports %v", ev)
	}
	for _, p := range []*worker{s.a, s.b} {
		if err := p.Exited(ctx); err != nil {
			return err
		}
	}
	entries, err := s.Client.Get(ctx, s.queue, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	if len(entries.Kvs) > 0 {
		return fmt.Errorf("found %v", entries.Kvs)
	}
	s.Row("parent", 0, demo.Dim, "both workers have exited; the lock's queue in etcd is empty")
	return nil
}

// cleanUp deletes the keys of this run. The entries of killed workers expire with their leases.
func (s *story) cleanUp(ctx context.Context) error {
	if s.a == nil {
		return nil // nothing was written
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, err := s.Client.Txn(ctx).Then(clientv3.OpDelete(s.job.Guarded), clientv3.OpDelete(s.job.Unguarded)).Commit()
	if err != nil {
		return fmt.Errorf("keys under %s/ may remain: %w", s.job.Lock, err)
	}
	return nil
}

// value is what a worker writes while it holds the lock, lateValue what it writes after it has lost it.
func value(name string) string     { return "from " + name }
func lateValue(name string) string { return "from " + name + ", too late" }
