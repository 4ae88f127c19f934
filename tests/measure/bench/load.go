package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// load is callers that acquire all at once, and release as soon as they hold.
type load struct {
	side     string // holdfast, or upstream, which has Mutexes alone
	kind     string // Mutex, readers, or semaphore
	callers  int
	sessions int // which callers share, each session with a client of its own
	names    int // of locks
}

// loads returns what -load measures.
func loads() (all []load) {
	for _, callers := range []int{960, 4000} {
		for _, sessions := range []int{1, 16, 64} {
			for _, side := range []string{"holdfast", "upstream"} {
				all = append(all, load{side, "Mutex", callers, sessions, 1})
			}
		}
	}
	return append(all,
		load{"holdfast", "Mutex", 960, 16, 96}, load{"upstream", "Mutex", 960, 16, 96},
		load{"holdfast", "readers", 960, 16, 1}, load{"holdfast", "semaphore of 25", 960, 16, 1},
	)
}

// loadResult is what a load has cost. Requests include messages on streams.
type loadResult struct {
	served   int
	took     time.Duration
	requests int64
	lost     int  // sessions
	disorder bool // a caller was served before another one that had queued earlier; holdfast's Mutexes tell by tokens
}

// measureLoads measures loads on one member in a process of its own: at rest, and beside twice as many busy loops as
// there are processors. It writes a row after each.
func measureLoads(ctx context.Context, all []load, limit time.Duration, out io.Writer) (err error) {
	c, err := etcdtest.NewCluster(1, etcdtest.Options{Fsync: true, DefaultTicks: true, Processes: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	fmt.Fprint(out, "| etcd | callers | sessions | names | side | served | seconds | requests each | sessions lost "+
		"| in order |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, loops := range []int{0, 2 * runtime.NumCPU()} {
		etcd := "at rest"
		if loops > 0 {
			etcd = fmt.Sprintf("beside %d busy loops", loops)
		}
		stop, err := busyLoops(ctx, loops)
		if err != nil {
			return err
		}
		for i, l := range all {
			r, err := l.measure(ctx, c.Endpoints(), fmt.Sprint("load/", loops, "/", i), limit)
			if err != nil {
				stop()
				return err
			}
			order := "–"
			if l.side == "holdfast" && l.kind == "Mutex" {
				order = map[bool]string{true: "no", false: "yes"}[r.disorder]
			}
			fmt.Fprintf(out, "| %s | %d, %s | %d | %d | %s | %d | %.1f | %.2f | %d | %s |\n", etcd, l.callers, l.kind,
				l.sessions, l.names, l.side, r.served, r.took.Seconds(), float64(r.requests)/float64(l.callers), r.lost, order)
		}
		stop()
	}
	return nil
}

// busyLoops starts n processes that do nothing but loop, until stop is called or this process has ended.
func busyLoops(ctx context.Context, n int) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all []*exec.Cmd
	stop = func() {
		cancel()
		for _, cmd := range all {
			_ = cmd.Wait() // it was killed
		}
	}
	for range n {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while kill -0 $PPID 2>/dev/null; do :; done")
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		all = append(all, cmd)
	}
	return stop, nil
}

// acquireFunc acquires a lock for a caller, and returns its token and what releases it.
type acquireFunc func(ctx context.Context, caller int) (token int64, release func(context.Context) error, err error)

func (l load) measure(ctx context.Context, endpoints []string, prefix string, limit time.Duration) (loadResult, error) {
	f := &idleFleet{lock: prefix}
	defer f.close()
	for range l.sessions {
		if err := f.dial(ctx, endpoints); err != nil {
			return loadResult{}, err
		}
	}
	var lost atomic.Int64
	acquire, err := map[string]func(context.Context, *idleFleet, *atomic.Int64) (acquireFunc, error){
		"holdfast": l.holdfast, "upstream": l.upstream,
	}[l.side](ctx, f, &lost)
	if err != nil {
		return loadResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var mu sync.Mutex // protects tokens
	tokens := make(map[int][]int64)
	before, began := f.sent.Load(), time.Now()
	var callers sync.WaitGroup
	for i := range l.callers {
		callers.Go(func() {
			token, release, err := acquire(ctx, i)
			if err != nil {
				return // not served in time
			}
			mu.Lock()
			tokens[i%l.names] = append(tokens[i%l.names], token)
			mu.Unlock()
			_ = release(ctx)
		})
	}
	callers.Wait()
	r := loadResult{took: time.Since(began), requests: f.sent.Load() - before, lost: int(lost.Load())}
	for _, of := range tokens {
		r.served += len(of)
		r.disorder = r.disorder || !slices.IsSorted(of)
	}
	return r, nil
}

func (l load) holdfast(ctx context.Context, f *idleFleet, lost *atomic.Int64) (acquireFunc, error) {
	var sessions []*session.Session
	for _, cli := range f.clients {
		s, err := session.New(ctx, cli, session.Options{Logger: slog.New(slog.DiscardHandler), OnStateChange: func(
			ev session.Event,
		) {
			if ev.State == holdfast.Lost {
				lost.Add(1)
			}
		}})
		if err != nil {
			return nil, err
		}
		f.closers = append(f.closers, func() { _ = s.Close(context.Background()) })
		sessions = append(sessions, s)
	}
	return func(ctx context.Context, i int) (int64, func(context.Context) error, error) {
		s, name := sessions[i%len(sessions)], fmt.Sprint(f.lock, "/", i%l.names)
		switch l.kind {
		case "Mutex":
			lk, err := locker.NewMutex(s, name).Lock(ctx)
			if err != nil {
				return 0, nil, err
			}
			return int64(lk.Token()), lk.Unlock, nil
		case "readers":
			lk, err := locker.NewRWMutex(s, name).RLock(ctx)
			if err != nil {
				return 0, nil, err
			}
			return 0, lk.Unlock, nil
		default:
			p, err := locker.NewSemaphore(s, name, 25).Acquire(ctx, 1)
			if err != nil {
				return 0, nil, err
			}
			return 0, p.Release, nil
		}
	}, nil
}

// upstream has callers of one session take turns by a sync.Mutex, because upstream's Mutex does not exclude them.
func (l load) upstream(_ context.Context, f *idleFleet, lost *atomic.Int64) (acquireFunc, error) {
	type ofSession struct {
		session *concurrency.Session
		turns   []sync.Mutex // of each name
	}
	var all []*ofSession
	closing, stop := context.WithCancel(context.Background())
	f.closers = append(f.closers, stop)
	for _, cli := range f.clients {
		s, err := concurrency.NewSession(cli, concurrency.WithTTL(15))
		if err != nil {
			return nil, err
		}
		go func() { // ends with the side
			select {
			case <-s.Done():
				lost.Add(1)
			case <-closing.Done():
			}
		}()
		f.closers = append(f.closers, func() { _ = s.Close() })
		all = append(all, &ofSession{s, make([]sync.Mutex, l.names)})
	}
	return func(ctx context.Context, i int) (int64, func(context.Context) error, error) {
		of := all[i%len(all)]
		of.turns[i%l.names].Lock()
		m := concurrency.NewMutex(of.session, fmt.Sprint(f.lock, "/", i%l.names))
		if err := m.Lock(ctx); err != nil {
			of.turns[i%l.names].Unlock()
			return 0, nil, err
		}
		return 0, func(ctx context.Context) error {
			defer of.turns[i%l.names].Unlock()
			return m.Unlock(ctx)
		}, nil
	}, nil
}
