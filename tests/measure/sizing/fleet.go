//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// parallel bounds the processes that start, lock or end at the same time.
const parallel = 64

// upstreamTTL is the TTL of sessions of etcd's own package, in seconds: the default of ours.
const upstreamTTL = 15

// fleet is a number of processes.
type fleet struct {
	endpoints []string
	options   session.Options
	polling   bool // see plan
	processes []*process

	lost    atomic.Int64          // sessions that were lost: the machine is too small for the fleet
	why     atomic.Pointer[error] // the first loss
	ctx     context.Context       // of the waiters; ends with close
	cancel  context.CancelFunc
	waiting sync.WaitGroup
}

// process is what a process of the fleet has.
type process struct {
	cli   *clientv3.Client
	sess  *session.Session
	locks []*locker.Lock

	upstream *concurrency.Session // instead of sess
}

func newFleet(endpoints []string, o session.Options) *fleet {
	o.Logger = slog.New(slog.DiscardHandler)
	f := &fleet{endpoints: endpoints, options: o}
	f.options.OnStateChange = func(ev session.Event) {
		if ev.State == holdfast.Lost {
			f.lost.Add(1)
			f.why.CompareAndSwap(nil, &ev.Err)
		}
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// each calls do for every process, several at a time.
func (f *fleet) each(do func(i int, p *process) error) error {
	errs := make([]error, len(f.processes))
	var all sync.WaitGroup
	for g := range parallel {
		all.Go(func() {
			for i := g; i < len(f.processes); i += parallel {
				errs[i] = do(i, f.processes[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// open starts n processes.
func (f *fleet) open(ctx context.Context, n int) error {
	for range n {
		f.processes = append(f.processes, &process{})
	}
	return f.each(func(_ int, p *process) (err error) {
		if p.cli, err = session.NewClient(ctx, session.ClientConfig(f.endpoints...)); err != nil {
			return err
		}
		if f.polling {
			p.cli.Watcher = struct{ clientv3.Watcher }{p.cli.Watcher} // replaced, so the session has one watch
		}
		p.sess, err = session.New(ctx, p.cli, f.options)
		return err
	})
}

// openUpstream starts n processes whose sessions are those of etcd's own package.
func (f *fleet) openUpstream(ctx context.Context, n int) error {
	for range n {
		f.processes = append(f.processes, &process{})
	}
	return f.each(func(_ int, p *process) (err error) {
		if p.cli, err = session.NewClient(ctx, session.ClientConfig(f.endpoints...)); err != nil {
			return err
		}
		p.upstream, err = concurrency.NewSession(p.cli, concurrency.WithTTL(upstreamTTL))
		return err
	})
}

// holdUpstream is hold with the Mutex of etcd's own package.
func (f *fleet) holdUpstream(ctx context.Context, k int) error {
	return f.each(func(i int, p *process) error {
		for j := range k {
			if err := concurrency.NewMutex(p.upstream, "upstream/"+lockName(i, j)).Lock(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// lockName is the name of lock j of process i.
func lockName(i, j int) string { return fmt.Sprintf("sizing/%06d/%d", i, j) }

// hold has each process acquire k locks that no other one wants.
func (f *fleet) hold(ctx context.Context, k int) error {
	return f.each(func(i int, p *process) error {
		for j := range k {
			lk, err := locker.NewMutex(p.sess, lockName(i, j)).Lock(ctx)
			if err != nil {
				return err
			}
			p.locks = append(p.locks, lk)
		}
		return nil
	})
}

// wait has each process wait for the first lock of the next one, and returns when all are in their queues.
func (f *fleet) wait(ctx context.Context) error {
	queued := make(chan struct{}, len(f.processes))
	for i, p := range f.processes {
		first := sync.OnceFunc(func() { queued <- struct{}{} })
		mu := locker.NewMutex(p.sess, lockName((i+1)%len(f.processes), 0)).
			With(locker.Options{OnWait: func(view.Place) { first() }})
		f.waiting.Go(func() {
			defer first()
			if lk, err := mu.Lock(f.ctx); err == nil {
				_ = lk.Unlock(f.ctx) // the process ahead has lost its session
			}
		})
	}
	for range f.processes {
		select {
		case <-queued:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// loop has n processes lock and unlock a free name each, one after the other, until done is called.
func (f *fleet) loop(ctx context.Context, n int) (done func() error) {
	ctx, cancel := context.WithCancel(ctx)
	busy := f.processes[:min(n, len(f.processes))]
	errs := make([]error, len(busy))
	var all sync.WaitGroup
	for i, p := range busy {
		mu := locker.NewMutex(p.sess, lockName(i, -1))
		all.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				err := mu.Do(ctx, func(context.Context, *locker.Lock) error { return nil })
				if ctx.Err() == nil {
					errs[i] = err
				}
			}
		})
	}
	return func() error {
		cancel()
		all.Wait()
		return errors.Join(errs...)
	}
}

// close ends all processes. What cannot be given back in time goes with its lease.
func (f *fleet) close() {
	f.cancel()
	f.waiting.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = f.each(func(_ int, p *process) error {
		if p.sess != nil {
			_ = p.sess.Close(ctx)
		}
		if p.upstream != nil {
			_ = p.upstream.Close()
		}
		if p.cli != nil {
			_ = p.cli.Close()
		}
		return nil
	})
}
