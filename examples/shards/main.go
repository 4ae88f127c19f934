//go:build unix

// Shards shares 12 shards among four processes that come and go. Each line shows the owner of each shard, as a reader
// sees it, how many have moved, and how long that took:
//
//	go run ./examples/shards
//	go run ./examples/shards --endpoints host1:2379,host2:2379
//
//	  time  who       what                                                                   token
//	 0.07s  A, B, C   A, B and C join
//	 0.20s  reader    A B C B C C C A B A B A   0 moved in 0.13 s
//	 0.20s  D         D joins
//	 0.24s  reader    A B D B C C C A D A D B   4 moved in 0.03 s
//	 0.24s  B         B is killed: its shards are free when its lease has ended
//	 4.53s  reader    A D C D C C C A D A D A   4 moved in 4.29 s
//	 4.53s  B         B is started again, and gets the shards that it had
//	 4.58s  reader    A B D B C C C A D A D B   4 moved in 0.05 s
//	 4.58s  D         D is asked to leave: it hands its shards over
//	 4.60s  reader    A B C B C C C A B A B A   4 moved in 0.02 s
//	 4.60s  A, B, C   all leave
//	 4.64s  reader    - - - - - - - - - - - -   0 moved in 0.05 s
//
// On a terminal a table below these lines shows the shards of each process as they move. Without --endpoints the
// program runs its own etcd. It exits with code 0 only if it observed every step.
//
// This file has the steps and the code of the processes, table.go what is shown.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

const (
	name   = "examples/shards"
	shards = 12
)

func main() {
	child.Main(member) // runs a member, if this process is one, and exits
	demo.Main(run)
}

// job is the input of a member.
type job struct{ Endpoints []string }

// nothing is what members report.
type nothing struct{}

// member is what each process does.
func member(ctx context.Context, member string, j job, _ *child.Parent[nothing]) (err error) {
	cli, err := session.NewClient(ctx, session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, &session.Options{TTL: demo.TTL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sess.Close(context.WithoutCancel(ctx))) }()
	all := shard.New(sess, name, shards).With(shard.Options{Member: member}) // a name that it keeps
	err = all.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
		<-ctx.Done() // here a process would do the shard's work, and send s.Token() with what it writes
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return nil // asked to end; its shards are handed over
	}
	return err
}

// story is what the steps share.
type story struct {
	*demo.Demo
	all     []*child.Child[nothing]          // that were started
	running map[string]*child.Child[nothing] // those that run
	owners  []string                         // after the last step
	moved   int
	slowest time.Duration
	because string
}

func run(ctx context.Context, d *demo.Demo) error {
	s := &story{Demo: d, running: make(map[string]*child.Child[nothing])}
	d.Header()
	err := d.Play(ctx, []demo.Step{
		s.step("A, B and C join", s.join, "A", "B", "C"),
		s.step("D joins", s.join, "D"),
		s.step("B is killed: its shards are free when its lease has ended", s.kill, "B"),
		s.step("B is started again, and gets the shards that it had", s.join, "B"),
		s.step("D is asked to leave: it hands its shards over", s.leave, "D"),
		s.step("all leave", s.leave, "A", "B", "C"),
	})
	d.Live() // no more
	if err == nil {
		d.Print(demo.Plain, "%d shards moved %d times. The slowest step took %.1f s: %s.", shards, s.moved,
			s.slowest.Seconds(), s.because)
	}
	err = child.KillAll(err, s.all...)
	_, left := d.Client.Delete(context.WithoutCancel(ctx), "holdfast/shard/"+name+"/@count") // no member runs any more
	return errors.Join(err, left)
}

// step has something happen to members, and waits until those that run own all shards.
func (s *story) step(what string, do func(ctx context.Context, name string) error, names ...string) demo.Step {
	return demo.Step{Name: what, Observe: func(ctx context.Context) error {
		s.Row(strings.Join(names, ", "), 0, demo.Dim, "%s", what)
		began := time.Now()
		for _, name := range names {
			if err := do(ctx, name); err != nil {
				return err
			}
		}
		if err := s.settle(ctx, what, began); err != nil {
			return err
		}
		return s.Look(ctx)
	}}
}

// settle waits until the members that run own all shards, evenly.
func (s *story) settle(ctx context.Context, what string, began time.Time) error {
	for now, err := range shard.NewReader(s.Client, name).Watch(ctx) {
		if err != nil {
			return err
		}
		owners := ownersOf(now)
		s.Live(s.table(owners)...)
		if !s.even(owners) {
			continue
		}
		moved, took := movedSince(s.owners, owners), time.Since(began)
		s.Row("reader", 0, demo.Good, "%s   %d moved in %.2f s", strings.Join(owners, " "), moved, took.Seconds())
		s.owners, s.moved = owners, s.moved+moved
		if took > s.slowest {
			s.slowest = took
			s.because, _, _ = strings.Cut(what, ":")
		}
		return nil
	}
	return context.Cause(ctx)
}

// join starts a member.
func (s *story) join(_ context.Context, name string) error {
	c, err := child.Start[nothing](name, job{s.Endpoints})
	if err != nil {
		return err
	}
	s.all, s.running[name] = append(s.all, c), c
	return nil
}

// leave asks a member to end: it hands its shards over.
func (s *story) leave(ctx context.Context, name string) error {
	c := s.running[name]
	delete(s.running, name)
	if err := c.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := c.Exited(ctx); err != nil {
		return fmt.Errorf("after SIGTERM: %w", err)
	}
	return nil
}

// kill ends a member with SIGKILL: it says nothing to etcd.
func (s *story) kill(_ context.Context, name string) error {
	s.running[name].Kill()
	delete(s.running, name)
	return nil
}
