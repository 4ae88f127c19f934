// Shards shares 12 shards among members that come and go. Each line shows the owner of each shard, as a reader sees it:
//
//	go run ./examples/shards
//	go run ./examples/shards --endpoints host1:2379,host2:2379
//
//	 time  who       what                                                                   token
//	0.06s  A, B, C   A, B and C join
//	0.27s  reader    A B C B C C C A B A B A
//	0.27s  D         D joins
//	0.28s  reader    A B D B C C C A D A D B
//	0.28s  B         B is killed: its shards are free when its lease has ended
//	2.54s  reader    A D C D C C C A D A D A
//	2.54s  B         B is started again, and gets the shards that it had
//	2.54s  reader    A B D B C C C A D A D B
//	2.54s  D         D leaves: it hands its shards over
//	2.55s  reader    A B C B C C C A B A B A
//	2.55s  A, B, C   all leave
//	2.55s  reader    - - - - - - - - - - - -
//
// Each member has a client and a session of its own, as a process has. Without --endpoints the program runs its own
// etcd. It exits with code 0 only if it observed every step.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

const (
	name   = "examples/shards"
	shards = 12
)

func main() { demo.Main(run) }

// story is what the steps share.
type story struct {
	*demo.Demo
	members errgroup.Group
	running map[string]*running
}

// running is a member.
type running struct {
	client *clientv3.Client
	leave  context.CancelFunc
}

func run(ctx context.Context, d *demo.Demo) error {
	s := &story{Demo: d, running: make(map[string]*running)}
	d.Header()
	err := d.Play(ctx, []demo.Step{
		s.step("A, B and C join", s.join, "A", "B", "C"),
		s.step("D joins", s.join, "D"),
		s.step("B is killed: its shards are free when its lease has ended", s.kill, "B"),
		s.step("B is started again, and gets the shards that it had", s.join, "B"),
		s.step("D leaves: it hands its shards over", s.leave, "D"),
		s.step("all leave", s.leave, "A", "B", "C"),
	})
	for _, r := range s.running { // after a failure
		r.leave()
	}
	_, left := d.Client.Delete(context.WithoutCancel(ctx), "holdfast/shard/"+name+"/@count") // no member runs any more
	return errors.Join(err, left, s.members.Wait())
}

// step has something happen to members, and waits until those that run own all shards.
func (s *story) step(what string, do func(ctx context.Context, name string) error, names ...string) demo.Step {
	return demo.Step{Name: what, Observe: func(ctx context.Context) error {
		s.Row(strings.Join(names, ", "), 0, demo.Dim, "%s", what)
		for _, name := range names {
			if err := do(ctx, name); err != nil {
				return err
			}
		}
		return s.settle(ctx)
	}}
}

// settle waits until the members that run own all shards, evenly.
func (s *story) settle(ctx context.Context) error {
	for owners, err := range shard.NewReader(s.Client, name).Watch(ctx) {
		if err != nil {
			return err
		}
		loads, table := make([]int, 0, len(s.running)), make([]string, 0, shards)
		for i := range owners.Owners {
			table = append(table, cmp.Or(owners.Owner(i).Member, "-"))
		}
		for name := range s.running {
			loads = append(loads, strings.Count(strings.Join(table, ""), name))
		}
		none := strings.Count(strings.Join(table, ""), "-")
		if len(loads) == 0 && none == len(table) || len(loads) > 0 && none == 0 &&
			sum(loads) == shards && slices.Max(loads)-slices.Min(loads) <= 1 {
			s.Row("reader", 0, demo.Good, "%s", strings.Join(table, " "))
			return nil
		}
	}
	return context.Cause(ctx)
}

func sum(all []int) (sum int) {
	for _, n := range all {
		sum += n
	}
	return sum
}

// join starts a member.
func (s *story) join(ctx context.Context, name string) error {
	cli, err := session.NewClient(ctx, session.ClientConfig(s.Endpoints...))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the step's ends before
	s.running[name] = &running{cli, cancel}
	s.members.Go(func() error {
		defer cli.Close()
		err := member(ctx, cli, name)
		if errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrClientClosed) {
			return nil // it was to leave, or killed
		}
		return fmt.Errorf("%s: %w", name, err)
	})
	return nil
}

// member is what a process does.
func member(ctx context.Context, cli *clientv3.Client, member string) error {
	sess, err := session.New(ctx, cli, &session.Options{TTL: demo.TTL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer sess.Close(context.WithoutCancel(ctx))
	all := shard.New(sess, name, shards).With(shard.Options{Member: member})
	return all.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
		<-ctx.Done() // here a process would do the shard's work, and send s.Token() with what it writes
		return nil
	})
}

// leave ends a member: it hands its shards over.
func (s *story) leave(_ context.Context, name string) error {
	s.running[name].leave()
	delete(s.running, name)
	return nil
}

// kill ends a member as a crash does: it says nothing to etcd.
func (s *story) kill(_ context.Context, name string) error {
	killed := s.running[name]
	delete(s.running, name)
	err := killed.client.Close()
	killed.leave()
	return err
}
