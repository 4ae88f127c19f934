package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/locker"
)

// manyRounds shows differences of a few percent between sides that do nearly the same, on a machine with other work.
const manyRounds = 200

// uncontended measures goroutines of one session, each with its own lock.
func uncontended() []subject {
	var all []subject
	for _, n := range []int{1, 64, 256, 1024} {
		sub := subject{
			name:  fmt.Sprintf("uncontended/goroutines=%d", n),
			what:  fmt.Sprintf("a free lock, %d at once", n),
			short: fmt.Sprintf("free lock, %d at once", n),
			each:  n,
			holdfast: func(e *env) (op, error) {
				sessions, err := e.holdfastSessions(1)
				if err != nil {
					return nil, err
				}
				return concurrently(n, func(i int) error {
					lk, err := locker.NewMutex(sessions[0], fmt.Sprint(e.name, "/", i)).Lock(e.ctx)
					if err != nil {
						return err
					}
					return lk.Unlock(e.ctx)
				}), nil
			},
			upstream: func(e *env) (op, error) {
				sessions, err := e.upstreamSessions(1)
				if err != nil {
					return nil, err
				}
				return concurrently(n, func(i int) error {
					mu := concurrency.NewMutex(sessions[0], fmt.Sprint(e.name, "/", i))
					if err := mu.Lock(e.ctx); err != nil {
						return err
					}
					return mu.Unlock(e.ctx)
				}), nil
			},
			floor: func(e *env) (op, error) {
				cli, err := e.client(0)
				return concurrently(n, func(i int) error {
					key := fmt.Sprint(e.name, "/", i)
					if _, err := cli.Put(e.ctx, key, ""); err != nil {
						return err
					}
					_, err := cli.Delete(e.ctx, key)
					return err
				}), err
			},
		}
		if n == 1 {
			sub.rounds = manyRounds
		}
		all = append(all, sub)
	}
	one := all[0]
	return append(all, subject{
		name:   "uncontended/txns",
		what:   "a free lock; floor: its two Txns, bare",
		rounds: one.rounds, holdfast: one.holdfast, upstream: one.upstream,
		floor: func(e *env) (op, error) { return bareTxns(e, one.holdfast) },
	})
}

var errNotHeld = errors.New("TryLock did not return ErrLocked for a held lock")

// tryLocks measures TryLock of a held lock.
func tryLocks() []subject {
	refused := subject{
		name:  "trylock",
		what:  "TryLock of a held lock",
		short: "TryLock, refused", rounds: 20,
		holdfast: func(e *env) (op, error) {
			sessions, err := e.holdfastSessions(2)
			if err != nil {
				return nil, err
			}
			_, err = locker.NewMutex(sessions[1], e.name).Lock(e.ctx)
			mu := locker.NewMutex(sessions[0], e.name)
			return func(timer) error {
				if _, err := mu.TryLock(e.ctx); !errors.Is(err, locker.ErrLocked) {
					return errors.Join(errNotHeld, err)
				}
				return nil
			}, err
		},
		upstream: func(e *env) (op, error) {
			sessions, err := e.upstreamSessions(2)
			if err != nil {
				return nil, err
			}
			err = concurrency.NewMutex(sessions[1], e.name).Lock(e.ctx)
			mu := concurrency.NewMutex(sessions[0], e.name)
			return func(timer) error {
				if err := mu.TryLock(e.ctx); !errors.Is(err, concurrency.ErrLocked) {
					return errors.Join(errNotHeld, err)
				}
				return nil
			}, err
		},
		floor: get,
	}
	return []subject{refused, {
		name:   "trylock/read",
		what:   "TryLock of a held lock; floor: its read, bare",
		rounds: refused.rounds, holdfast: refused.holdfast, upstream: refused.upstream,
		floor: func(e *env) (op, error) { return bareRead(e, refused.holdfast) },
	}}
}

// oneSession measures goroutines of one process that compete for one lock. Upstream's Mutex does not exclude goroutines
// of one session from each other, so its users need a session for each goroutine, or a sync.Mutex around the lock.
func oneSession() []subject {
	const n = 64
	holdfast := func(e *env) (op, error) {
		sessions, err := e.holdfastSessions(1)
		if err != nil {
			return nil, err
		}
		var all []contender
		for range n {
			all = append(all, holdfastContender(locker.NewMutex(sessions[0], e.name)))
		}
		return takeTurns(e, all)
	}
	apart := subject{
		name:     "onesession/goroutines=64/upstream=sessions",
		what:     "hand-over among 64 goroutines of one session; upstream: 64 sessions",
		short:    "64 goroutines / 64 sessions",
		holdfast: holdfast,
		upstream: func(e *env) (op, error) { return takeTurnsWith(e, upstreamMutexes, n) },
		floor:    put,
	}
	return []subject{apart, {
		rounds:   20,
		name:     "onesession/goroutines=64/upstream=syncmutex",
		what:     "the same; upstream: one session, and a sync.Mutex around Lock and Unlock",
		short:    "64 goroutines / a sync.Mutex",
		holdfast: holdfast,
		upstream: func(e *env) (op, error) {
			sessions, err := e.upstreamSessions(1)
			if err != nil {
				return nil, err
			}
			shared := guarded{mu: concurrency.NewMutex(sessions[0], e.name)}
			var all []contender
			for range n {
				all = append(all, shared.contend)
			}
			return takeTurns(e, all)
		},
		floor: put,
	}, {
		name: "onesession/txn",
		what: "hand-over among 64 goroutines of one session; upstream: 64 sessions; " +
			"floor: its Txn, bare",
		rounds: 20, holdfast: apart.holdfast, upstream: apart.upstream, floor: bareHandOver,
	}}
}

// guarded makes an upstream Mutex safe for goroutines that share a session.
type guarded struct {
	local sync.Mutex
	mu    *concurrency.Mutex
}

func (g *guarded) contend(ctx context.Context) (func(context.Context) error, error) {
	g.local.Lock()
	if err := g.mu.Lock(ctx); err != nil {
		g.local.Unlock()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer g.local.Unlock()
		return g.mu.Unlock(ctx)
	}, nil
}
