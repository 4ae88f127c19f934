package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// idleName selects what idle measures.
const idleName = "members=3/idle"

// idlePlan is how to measure what an idle process costs.
type idlePlan struct {
	processes int
	settle    time.Duration // before requests are counted: what a session or a lock costs once is no part of it
	window    time.Duration // in which they are counted
}

// idle measures what a process costs that does nothing, beyond its client of etcd: with a session, and when it holds a
// lock. It returns a table. The members are processes of their own, so that this one has nothing but the clients.
func (p idlePlan) idle(ctx context.Context) (_ string, err error) {
	c, err := etcdtest.NewCluster(3, etcdtest.Options{Fsync: true, DefaultTicks: true, Processes: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var b strings.Builder
	fmt.Fprintf(&b, "What each of %d idle processes costs, with three members and a TTL of 15 s, beyond its client. "+
		"Requests\nare counted for %v.\n\n", p.processes, p.window)
	b.WriteString("| a process | goroutines | memory | requests a second |\n| --- | --- | --- | --- |\n")
	for _, side := range []string{"holdfast", "upstream"} {
		if err := p.side(ctx, &b, c.Endpoints(), side); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

func (p idlePlan) side(ctx context.Context, b *strings.Builder, endpoints []string, name string) error {
	f := &idleFleet{lock: fmt.Sprint("idle/", name)}
	defer f.close()
	for range p.processes {
		if err := f.dial(ctx, endpoints); err != nil {
			return err
		}
	}
	before := usage()
	for _, stage := range []struct {
		what  string
		enter func(ctx context.Context, cli *clientv3.Client, i int) error
	}{
		{"with a session", map[string]func(context.Context, *clientv3.Client, int) error{
			"holdfast": f.openHoldfast, "upstream": f.openUpstream}[name]},
		{"and holds a lock", func(ctx context.Context, _ *clientv3.Client, i int) error { return f.locks[i](ctx) }},
	} {
		for i, cli := range f.clients {
			if err := stage.enter(ctx, cli, i); err != nil {
				return err
			}
		}
		if err := pause(ctx, p.settle); err != nil {
			return err
		}
		sent := f.sent.Load()
		if err := pause(ctx, p.window); err != nil {
			return err
		}
		n, now := float64(p.processes), usage()
		fmt.Fprintf(b, "| of %s %s | %.1f | %.0f KB | %.2f |\n", name, stage.what,
			float64(now.goroutines-before.goroutines)/n, (float64(now.bytes)-float64(before.bytes))/n/1e3,
			float64(f.sent.Load()-sent)/n/p.window.Seconds())
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// used is what this process uses.
type used struct {
	goroutines int
	bytes      uint64 // of heap and stacks
}

func usage() used {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{runtime.NumGoroutine(), m.HeapAlloc + m.StackInuse}
}

// idleFleet is processes of one side.
type idleFleet struct {
	lock    string // what the names of their locks begin with
	clients []*clientv3.Client
	locks   []func(context.Context) error // acquires the lock of a process
	closers []func()
	sent    atomic.Int64 // requests, and messages on streams
}

func (f *idleFleet) close() {
	for _, closer := range f.closers {
		closer()
	}
	for _, cli := range f.clients {
		_ = cli.Close() // always returns context.Canceled
	}
}

// dial adds a client, which is connected to each member.
func (f *idleFleet) dial(ctx context.Context, endpoints []string) error {
	cfg := session.ClientConfig(endpoints...)
	cfg.DialOptions = append(cfg.DialOptions,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			f.sent.Add(1)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, desc, cc, method, opts...)
			return &countedStream{s, &f.sent}, err
		}))
	cli, err := session.NewClient(ctx, cfg)
	if err != nil {
		return err
	}
	f.clients = append(f.clients, cli)
	for range 2 * len(endpoints) {
		if _, err := cli.Get(ctx, "connected"); err != nil {
			return err
		}
	}
	return nil
}

// countedStream counts the messages that a client sends.
type countedStream struct {
	grpc.ClientStream
	sent *atomic.Int64
}

func (s *countedStream) SendMsg(m any) error {
	s.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}

func (f *idleFleet) openHoldfast(ctx context.Context, cli *clientv3.Client, i int) error {
	s, err := session.New(ctx, cli, session.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	f.closers = append(f.closers, func() { _ = s.Close(context.Background()) })
	f.locks = append(f.locks, func(ctx context.Context) error {
		_, err := locker.NewMutex(s, fmt.Sprint(f.lock, "/", i)).Lock(ctx)
		return err
	})
	return nil
}

func (f *idleFleet) openUpstream(_ context.Context, cli *clientv3.Client, i int) error {
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(15))
	if err != nil {
		return err
	}
	f.closers = append(f.closers, func() { _ = s.Close() })
	f.locks = append(f.locks, concurrency.NewMutex(s, fmt.Sprint(f.lock, "/", i)).Lock)
	return nil
}
