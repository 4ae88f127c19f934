//go:build unix

// Leader shows an election among three processes, and its terms moving from one
// to the next:
//
//	go run ./examples/leader
//	go run ./examples/leader --endpoints host1:2379,host2:2379
//
// Three candidates campaign. The leader is killed (SIGKILL): when etcd has
// expired its lease the next in line leads, and the killed one, started again,
// queues at the back. Then the leader is asked to end (SIGTERM): it drains,
// resigns, and the next leads at once. At last everybody ends, and nobody leads.
//
// Without --endpoints an etcd runs inside this process, for as long as the story
// takes. The exit code is 0 only if every step was observed.
//
// main.go is the story, candidate.go what the candidates do.
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
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/session"
)

// ttl is short so that the story is. The default is session.DefaultTTL.
const ttl = 2 * time.Second

func main() {
	child.Main(campaign) // in a candidate; that is all it does
	endpoints := flag.String("endpoints", "", "comma-separated `addresses` of an etcd cluster to use (default: an embedded etcd)")
	patience := flag.Duration("patience", 15*time.Second, "how long to wait for each step")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *endpoints, *patience, os.Stdout); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

// run sets the stage, has the story told, and clears everything away again,
// however it ended.
func run(ctx context.Context, endpoints string, patience time.Duration, out io.Writer) (err error) {
	s := &story{out: out, began: time.Now(), job: job{Election: fmt.Sprintf("leader/%08d", rand.IntN(1e8))}}
	s.job.Output = "examples/" + s.job.Election
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
	cli, err := clientv3.New(session.ClientConfig(s.job.Endpoints...))
	if err != nil {
		return err
	}
	defer cli.Close()
	s.cli = cli

	defer func() {
		err = child.KillAll(err, s.all...)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.sess != nil {
			s.observing()
			err = errors.Join(err, s.sess.Close(ctx))
			_, deleted := cli.Delete(ctx, s.job.Output)
			err = errors.Join(err, deleted) // entries of the killed go with their leases
		}
	}()
	fmt.Fprintf(out, "One election, three candidates (TTL %v).\n\n%7s  %-6s  %-62s  %6s\n", ttl, "time", "who", "what", "token")
	steps := s.steps()
	for i, step := range steps {
		if err := within(ctx, patience, step.observe); err != nil {
			return fmt.Errorf("step %d of %d was not observed: %s: %w", i+1, len(steps), step.name, err)
		}
	}
	fmt.Fprintf(out, "\nAll %d steps were observed, in %.1f s.\n", len(steps), time.Since(s.began).Seconds())
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
	began time.Time
	job   job
	cli   *clientv3.Client

	all    []*candidate // every candidate that was started, in order
	line   []*candidate // the candidates in the order in which they queue; the first leads
	tokens []fencing.Token

	sess      *session.Session
	observing context.CancelFunc
	leaders   chan observed
}

type candidate = child.Child[fencing.Token]

type observed struct {
	leader election.Leader
	err    error
}

// step is one thing that must be seen.
type step struct {
	name    string
	observe func(context.Context) error
}

func (s *story) steps() []step {
	return []step{
		{"an observer sees that nobody leads", s.nobodyLeads},
		{"A leads", s.candidateLeads("A")},
		{"B and C queue behind A", s.othersQueue("B", "C")},
		{"A is killed", s.leaderIsKilled},
		{"B leads when A's lease has expired", s.nextLeads("etcd has expired the lease of A")},
		{"A is back, and queues behind C", s.othersQueue("A")},
		{"B is asked to end: it drains and resigns", s.leaderResigns},
		{"C leads at once", s.nextLeads("B has resigned")},
		{"C is killed", s.leaderIsKilled},
		{"A leads again, with a larger token", s.nextLeads("etcd has expired the lease of C")},
		{"A is asked to end, and nobody leads", s.lastEnds},
	}
}

// nobodyLeads starts the observer, which stays for the whole story.
func (s *story) nobodyLeads(ctx context.Context) (err error) {
	if s.sess, err = session.New(ctx, s.cli, nil); err != nil {
		return err
	}
	octx, cancel := context.WithCancel(context.Background())
	s.observing, s.leaders = cancel, make(chan observed, 16)
	go func() { // ends with octx, at the end of run
		for l, err := range election.New(s.sess, s.job.Election).Observe(octx) {
			s.leaders <- observed{l, err}
		}
	}()
	return s.observe(ctx, "")
}

// observe waits until the observer tells that name leads; "" is nobody.
func (s *story) observe(ctx context.Context, name string) error {
	for {
		select {
		case o := <-s.leaders:
			switch {
			case o.err != nil:
				return o.err
			case o.leader.Value == name && o.leader.Token == 0:
				s.row("observer", 0, "nobody leads")
				return nil
			case o.leader.Value == name:
				s.row("observer", o.leader.Token, "%s leads", name)
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *story) candidateLeads(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := s.start(name); err != nil {
			return err
		}
		return s.nextLeads("nobody was ahead")(ctx)
	}
}

func (s *story) start(name string) error {
	p, err := child.Start[fencing.Token](name, s.job)
	if err != nil {
		return err
	}
	s.all, s.line = append(s.all, p), append(s.line, p)
	return nil
}

// nextLeads waits for the first in line to say that it leads, with a token
// larger than all before, and for the observer to see it.
func (s *story) nextLeads(why string) func(context.Context) error {
	return func(ctx context.Context) error {
		p := s.line[0]
		token, err := p.Await(ctx, elected)
		if err != nil {
			return err
		}
		if n := len(s.tokens); n > 0 && token <= s.tokens[n-1] {
			return fmt.Errorf("its token is %v, after %v", token, s.tokens)
		}
		s.tokens = append(s.tokens, token)
		s.row(p.Name, token, "is elected (process %d): %s", p.PID(), why)
		return s.observe(ctx, p.Name)
	}
}

// othersQueue starts candidates one after the other, and waits for each one's
// entry in etcd.
func (s *story) othersQueue(names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, name := range names {
			if err := s.start(name); err != nil {
				return err
			}
			if err := s.queued(ctx, len(s.line)); err != nil {
				return err
			}
			s.row(name, 0, "process %d queues behind %s", s.line[len(s.line)-1].PID(), s.line[len(s.line)-2].Name)
		}
		return nil
	}
}

// queued waits until n candidates have an entry. The watch is armed before the
// first look, so that no change is missed.
func (s *story) queued(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := s.sess.Namespace() + "/election/" + s.job.Election + "/@/"
	for change := range s.cli.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if err := change.Err(); err != nil {
			return err
		}
		entries, err := s.cli.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if entries.Count == int64(n) {
			return nil
		}
	}
	return context.Cause(ctx)
}

func (s *story) leaderIsKilled(context.Context) error {
	p := s.line[0]
	s.line = s.line[1:]
	s.row("parent", 0, "SIGKILL to %s: it cannot resign, its entry stays for now", p.Name)
	p.Kill()
	return nil
}

func (s *story) leaderResigns(ctx context.Context) error {
	p := s.line[0]
	s.line = s.line[1:]
	s.row("parent", 0, "SIGTERM to %s: its context ends", p.Name)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	token, err := p.Await(ctx, drained)
	if err != nil {
		return err
	}
	s.row(p.Name, token, "has finished its work, still leading; now it resigns")
	return nil
}

func (s *story) lastEnds(ctx context.Context) error {
	last := s.line[0]
	if err := s.leaderResigns(ctx); err != nil {
		return err
	}
	if err := s.observe(ctx, ""); err != nil {
		return err
	}
	if err := last.Exited(ctx); err != nil {
		return err
	}
	return s.workedInTurn(ctx)
}

// workedInTurn looks at what the leaders have written through a FencedWriter:
// the last of them all.
func (s *story) workedInTurn(ctx context.Context) error {
	resp, err := s.cli.Get(ctx, s.job.Output)
	if err != nil {
		return err
	}
	want := s.tokens[len(s.tokens)-1].String()
	if len(resp.Kvs) == 0 || string(resp.Kvs[0].Value) != want {
		return fmt.Errorf("the last write is %v, want that of token %s", resp.Kvs, want)
	}
	s.row("parent", 0, "the last write is that of the last leader")
	return nil
}

// row prints one thing that was observed now. A zero token is left out.
func (s *story) row(who string, token fencing.Token, format string, args ...any) {
	shown := ""
	if token != 0 {
		shown = token.String()
	}
	line := fmt.Sprintf("%6.2fs  %-8s  %-60s  %6s", time.Since(s.began).Seconds(), who, fmt.Sprintf(format, args...), shown)
	fmt.Fprintln(s.out, strings.TrimRight(line, " "))
}
