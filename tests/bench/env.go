package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/session"
)

const (
	// ttl is long, so that no renewal falls into a measurement.
	ttl = 10 * time.Minute

	// connections bounds how many a side uses. Up to so many sessions have one
	// each, as processes would; a thousand share.
	connections = 32
)

// env is where one side is set up: its own clients, sessions and goroutines on
// a store that it shares with the other sides, and a name of its own in it.
type env struct {
	ctx     context.Context // until close
	cancel  context.CancelCauseFunc
	dial    func() (*clientv3.Client, error)
	name    string
	prepare func() error // called before each round of measurements

	running sync.WaitGroup
	clients []*clientv3.Client
	undo    []func(context.Context)
}

func newEnv(dial func() (*clientv3.Client, error), name string) *env {
	e := &env{dial: dial, name: name, prepare: func() error { return nil }}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// close ends what the side has started, and joins it.
func (e *env) close() {
	e.cancel(nil)
	e.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, undo := range e.undo {
		all.Go(func() { undo(ctx) })
	}
	all.Wait()
	for _, cli := range e.clients {
		_ = cli.Close() // says only that it was closed
	}
}

// spawn runs f on a goroutine that close joins. Its error ends the side.
func (e *env) spawn(f func() error) {
	e.running.Go(func() {
		if err := f(); err != nil {
			e.cancel(err) // no more than the first counts
		}
	})
}

// client is the i-th connection.
func (e *env) client(i int) (*clientv3.Client, error) {
	if i %= connections; i < len(e.clients) {
		return e.clients[i], nil
	}
	cli, err := e.dial()
	if err != nil {
		return nil, err
	}
	e.clients = append(e.clients, cli)
	return cli, nil
}

// holdfastSessions opens n sessions, each on a connection of its own as far as
// there are enough.
func (e *env) holdfastSessions(n int) ([]*session.Session, error) {
	return open(e, n, func(cli *clientv3.Client) (*session.Session, error) {
		return session.New(e.ctx, cli, &session.Options{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
	}, func(ctx context.Context, s *session.Session) { _ = s.Close(ctx) })
}

// upstreamSessions opens as many of etcd's concurrency package.
func (e *env) upstreamSessions(n int) ([]*concurrency.Session, error) {
	return open(e, n, func(cli *clientv3.Client) (*concurrency.Session, error) {
		return concurrency.NewSession(cli, concurrency.WithTTL(int(ttl/time.Second)))
	}, func(_ context.Context, s *concurrency.Session) { _ = s.Close() })
}

// open opens n sessions of either kind, all at once: each is a commit.
func open[S any](e *env, n int, one func(*clientv3.Client) (S, error), end func(context.Context, S)) ([]S, error) {
	sessions, errs := make([]S, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		cli, err := e.client(i)
		if err != nil {
			errs[i] = err
			break
		}
		all.Go(func() { sessions[i], errs[i] = one(cli) })
	}
	all.Wait()
	for i, s := range sessions {
		if errs[i] == nil {
			e.undo = append(e.undo, func(ctx context.Context) { end(ctx, s) })
		}
	}
	return sessions, errors.Join(errs...)
}

// give sends on a channel that a goroutine of the side receives from, and take
// receives from one. Both end with the side, with its error.
func (e *env) give(c chan<- struct{}) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	}
}

func (e *env) take(c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	}
}

// awaitKeys waits until n keys stand under a prefix.
func (e *env) awaitKeys(cli *clientv3.Client, prefix string, n int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := cli.Get(e.ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("count the keys under %s: %w", prefix, err)
		}
		if resp.Count == int64(n) {
			return nil
		}
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return context.Cause(e.ctx)
		}
	}
}

// write keeps the store busy with n goroutines until the env is closed.
func (e *env) write(n int) error {
	cli, err := e.client(0)
	if err != nil {
		return err
	}
	for i := range n {
		key := fmt.Sprint(e.name, "/", i)
		e.spawn(func() error {
			for {
				if _, err := cli.Put(e.ctx, key, "busy"); e.ctx.Err() != nil {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
	}
	return nil
}
