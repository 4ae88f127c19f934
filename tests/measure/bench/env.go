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
	// ttl is long, so that no lease is renewed during a measurement.
	ttl = 10 * time.Minute

	// connections is the largest number of connections of a side. Up to this number each session has its own, as
	// processes would; more sessions share them.
	connections = 32
)

// env holds the clients, sessions and goroutines of one side, and a name that only this side uses. The sides share a
// store.
type env struct {
	ctx     context.Context // ends with close, or with the first error of a goroutine
	cancel  context.CancelCauseFunc
	dial    func() (*clientv3.Client, error)
	name    string
	prepare func() error // called before each round of measurements

	running sync.WaitGroup
	clients []*clientv3.Client
	closers []func(context.Context)
}

func newEnv(dial func() (*clientv3.Client, error), name string) *env {
	e := &env{dial: dial, name: name, prepare: func() error { return nil }}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// close stops everything that the side has started, and waits for it.
func (e *env) close() {
	e.cancel(nil)
	e.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, closer := range e.closers {
		all.Go(func() { closer(ctx) })
	}
	all.Wait()
	for _, cli := range e.clients {
		_ = cli.Close() // always returns context.Canceled
	}
}

// spawn runs f on a goroutine that close waits for. An error of f ends the side.
func (e *env) spawn(f func() error) {
	e.running.Go(func() {
		if err := f(); err != nil {
			e.cancel(err) // only the first error has an effect
		}
	})
}

// client returns connection i modulo connections.
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

// holdfastSessions opens n sessions, spread over the connections.
func (e *env) holdfastSessions(n int) ([]*session.Session, error) {
	return open(e, n, func(cli *clientv3.Client) (*session.Session, error) {
		return session.New(e.ctx, cli, session.Options{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
	}, func(ctx context.Context, s *session.Session) { _ = s.Close(ctx) })
}

// upstreamSessions opens n sessions of etcd's concurrency package, spread over the connections.
func (e *env) upstreamSessions(n int) ([]*concurrency.Session, error) {
	return open(e, n, func(cli *clientv3.Client) (*concurrency.Session, error) {
		return concurrency.NewSession(cli, concurrency.WithTTL(int(ttl/time.Second)))
	}, func(_ context.Context, s *concurrency.Session) { _ = s.Close() })
}

// open opens n sessions concurrently, because each takes a commit.
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
			e.closers = append(e.closers, func(ctx context.Context) { end(ctx, s) })
		}
	}
	return sessions, errors.Join(errs...)
}

// send sends on a channel. It returns the side's error if the side ends first.
func (e *env) send(c chan<- struct{}) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	}
}

// receive receives from a channel. It returns the side's error if the side ends first.
func (e *env) receive(c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	}
}

// awaitKeys waits until n keys with a prefix exist.
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

// write keeps the store busy with n writers until the env is closed.
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
