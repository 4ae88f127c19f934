//go:build unix

// Leader runs an election among three processes, and shows how leadership passes from one to the next:
//
//	go run ./examples/leader
//	go run ./examples/leader --endpoints host1:2379,host2:2379
//
// Three candidates campaign. The leader is killed (SIGKILL): once its lease has expired in etcd the next in the queue
// leads. The killed candidate, started again, queues at the back. Then the leader is asked to end (SIGTERM): it
// finishes its work and resigns, and the next leads at once. In the end all have exited, and there is no leader.
//
// Without --endpoints the program runs its own etcd. It exits with code 0 only if it observed every step.
//
// This file has the steps, candidate.go the code of the candidates.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/session"
)

func main() {
	child.Main(campaign) // runs a candidate, if this process is one, and exits
	demo.Main(run)
}

// run plays the story, and cleans up however it ended.
func run(ctx context.Context, d *demo.Demo) (err error) {
	id := fmt.Sprintf("leader/%08d", rand.IntN(1e8))
	s := &story{Demo: d, job: job{Endpoints: d.Endpoints, Election: id, Output: "examples/" + id}}
	defer func() {
		err = errors.Join(child.KillAll(err, s.all...), s.cleanUp(ctx))
	}()
	d.Print(demo.Plain, "One election, three candidates (TTL %v).", demo.TTL)
	d.Print(demo.Plain, "")
	d.Header()
	return d.Play(ctx, s.steps())
}

// story is what the steps share.
type story struct {
	*demo.Demo
	job job

	all    []*candidate // every candidate that was started
	queue  []*candidate // those in the election, in order; the first leads
	tokens []holdfast.Token

	sess     *session.Session // the observer's
	stop     context.CancelFunc
	observed chan observation
}

type candidate = child.Child[holdfast.Token]

// observation is what Watch yields.
type observation struct {
	leader election.Leader
	err    error
}

func (s *story) steps() []demo.Step {
	return []demo.Step{
		{Name: "the observer sees no leader", Observe: s.startObserver},
		{Name: "A leads", Observe: s.firstLeads("A")},
		{Name: "B and C queue behind A", Observe: s.joinQueue("B", "C")},
		{Name: "A is killed", Observe: s.killLeader},
		{Name: "B leads after A's lease has expired", Observe: s.nextLeads("A's lease has expired in etcd")},
		{Name: "A is started again and queues behind C", Observe: s.joinQueue("A")},
		{Name: "B is asked to end, finishes its work and resigns", Observe: s.terminateLeader},
		{Name: "C leads at once", Observe: s.nextLeads("B has resigned")},
		{Name: "C is killed", Observe: s.killLeader},
		{Name: "A leads again, with a larger token", Observe: s.nextLeads("C's lease has expired in etcd")},
		{Name: "A is asked to end, and there is no leader", Observe: s.terminateLast},
	}
}

// startObserver starts an observer, which runs until the end.
func (s *story) startObserver(ctx context.Context) (err error) {
	if s.sess, err = session.New(ctx, s.Client, session.Options{}); err != nil {
		return err
	}
	octx, cancel := context.WithCancel(context.Background())
	s.stop, s.observed = cancel, make(chan observation, 16)
	go func() { // ends with octx, in cleanUp
		for l, err := range election.New(s.sess, s.job.Election).Watch(octx) {
			s.observed <- observation{l, err}
		}
	}()
	return s.observe(ctx, "")
}

// observe waits until the observer sees that name leads; "" is no leader.
func (s *story) observe(ctx context.Context, name string) error {
	for {
		select {
		case o := <-s.observed:
			switch {
			case o.err != nil:
				return o.err
			case o.leader.Value == name && o.leader.Token == 0:
				s.Row("observer", 0, demo.Plain, "there is no leader")
				return nil
			case o.leader.Value == name:
				s.Row("observer", o.leader.Token, demo.Plain, "%s leads", name)
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *story) firstLeads(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := s.start(name); err != nil {
			return err
		}
		return s.nextLeads("the queue was empty")(ctx)
	}
}

func (s *story) start(name string) error {
	p, err := child.Start[holdfast.Token](name, s.job)
	if err != nil {
		return err
	}
	s.all, s.queue = append(s.all, p), append(s.queue, p)
	return nil
}

// nextLeads waits until the first in the queue reports that it leads, with a token larger than all before, and until
// the observer sees it.
func (s *story) nextLeads(why string) func(context.Context) error {
	return func(ctx context.Context) error {
		p := s.queue[0]
		token, err := p.Await(ctx, elected)
		if err != nil {
			return err
		}
		if n := len(s.tokens); n > 0 && token <= s.tokens[n-1] {
			return fmt.Errorf("its token is %v, after %v", token, s.tokens)
		}
		s.tokens = append(s.tokens, token)
		s.Row(p.Name, token, demo.Good, "is elected (process %d): %s", p.PID(), why)
		return s.observe(ctx, p.Name)
	}
}

// joinQueue starts candidates, and waits for the entry of each in etcd.
func (s *story) joinQueue(names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, name := range names {
			if err := s.start(name); err != nil {
				return err
			}
			n := len(s.queue)
			entries := s.sess.Namespace() + "/election/" + s.job.Election + "/@/"
			if err := s.WaitForKeys(ctx, entries, int64(n)); err != nil {
				return err
			}
			s.Row(name, 0, demo.Plain, "process %d queues behind %s", s.queue[n-1].PID(), s.queue[n-2].Name)
		}
		return nil
	}
}

func (s *story) killLeader(context.Context) error {
	p := s.queue[0]
	s.queue = s.queue[1:]
	s.Row("parent", 0, demo.Dim, "SIGKILL to %s: it cannot resign, so its entry stays until its lease ends", p.Name)
	p.Kill()
	return nil
}

func (s *story) terminateLeader(ctx context.Context) error {
	p := s.queue[0]
	s.queue = s.queue[1:]
	s.Row("parent", 0, demo.Dim, "SIGTERM to %s: its context is canceled", p.Name)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	token, err := p.Await(ctx, drained)
	if err != nil {
		return err
	}
	s.Row(p.Name, token, demo.Plain, "has finished its work while it still led; now it resigns")
	return nil
}

func (s *story) terminateLast(ctx context.Context) error {
	last := s.queue[0]
	if err := s.terminateLeader(ctx); err != nil {
		return err
	}
	if err := s.observe(ctx, ""); err != nil {
		return err
	}
	if err := last.Exited(ctx); err != nil {
		return err
	}
	return s.checkOutput(ctx)
}

// checkOutput reads what the leaders wrote through an etcdfence.Writer: the last write must be that of the last leader.
func (s *story) checkOutput(ctx context.Context) error {
	resp, err := s.Client.Get(ctx, s.job.Output)
	if err != nil {
		return err
	}
	want := s.tokens[len(s.tokens)-1].String()
	if len(resp.Kvs) == 0 || string(resp.Kvs[0].Value) != want {
		return fmt.Errorf("the last write is %v, want that of token %s", resp.Kvs, want)
	}
	s.Row("parent", 0, demo.Good, "the last write is the last leader's")
	return nil
}

// cleanUp stops the observer and deletes this run's key. The entries of killed candidates expire with their leases.
func (s *story) cleanUp(ctx context.Context) error {
	if s.sess == nil {
		return nil // nothing was written
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	s.stop()
	err := s.sess.Close(ctx)
	_, deleteErr := s.Client.Delete(ctx, s.job.Output)
	return errors.Join(err, deleteErr)
}
