package main

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/locker"
)

// handovers measures sessions that compete for one lock and release it at once.
func handovers() []subject {
	var all []subject
	for _, n := range []int{2, 8, 32} {
		s := subject{
			name:     fmt.Sprintf("handover/sessions=%d", n),
			what:     fmt.Sprintf("hand-over among %d sessions", n),
			short:    fmt.Sprintf("hand-over, %d sessions", n),
			holdfast: func(e *env) (op, error) { return takeTurnsWith(e, holdfastMutexes, n) },
			upstream: func(e *env) (op, error) { return takeTurnsWith(e, upstreamMutexes, n) },
			floor:    func(e *env) (op, error) { return takeTurnsWith(e, bareMutexes, n) },
		}
		busy := s
		busy.name, busy.writers = s.name+"/writers=4", 4
		busy.what += " beside 4 writers"
		busy.short += ", busy store"
		all = append(all, s, busy)
	}
	return all
}

// releases measures the release of a lock with many waiting sessions.
func releases() []subject {
	var all []subject
	for _, n := range []int{100, 1000} {
		all = append(all, subject{
			name:     fmt.Sprintf("release/waiters=%d", n),
			what:     fmt.Sprintf("release to the next of %d waiters", n),
			short:    fmt.Sprintf("release, %d waiters", n),
			holdfast: func(e *env) (op, error) { return drainQueueWith(e, holdfastMutexes, n, crowdOf(e, 0)) },
			upstream: func(e *env) (op, error) { return drainQueueWith(e, upstreamMutexes, n, crowd{prefix: e.name + "/"}) },
			floor:    deleteAndGet,
		})
	}
	const waiters = 20
	for _, n := range []int{1000, 10_000} {
		all = append(all, subject{
			name: fmt.Sprintf("release/behind=%d", n),
			what: fmt.Sprintf("release to the next of %d waiters, with %d more behind them", waiters, n),
			holdfast: func(e *env) (op, error) {
				return drainQueueWith(e, holdfastMutexes, waiters, crowdOf(e, n))
			},
			upstream: func(e *env) (op, error) {
				return drainQueueWith(e, upstreamMutexes, waiters, crowd{prefix: e.name + "/", size: n})
			},
			floor: deleteAndGet,
		})
	}
	return all
}

// crowdOf returns a crowd in the queue of holdfast.
func crowdOf(e *env, n int) crowd {
	lock := "holdfast/lock/" + e.name
	return crowd{prefix: lock + "/@/", claims: lock + "/@claim/", size: n}
}

func takeTurnsWith(e *env, make func(*env, int) ([]contender, error), n int) (op, error) {
	all, err := make(e, n)
	if err != nil {
		return nil, err
	}
	return takeTurns(e, all)
}

func drainQueueWith(e *env, make func(*env, int) ([]contender, error), waiters int, behind crowd) (op, error) {
	all, err := make(e, waiters+1)
	if err != nil {
		return nil, err
	}
	return drainQueue(e, all, behind)
}

// holdfastMutexes returns contenders for one lock, each with its own session.
func holdfastMutexes(e *env, n int) ([]contender, error) {
	sessions, err := e.holdfastSessions(n)
	var all []contender
	for _, s := range sessions {
		all = append(all, holdfastContender(locker.NewMutex(s, e.name)))
	}
	return all, err
}

func holdfastContender(mu *locker.Mutex) contender {
	return func(ctx context.Context) (func(context.Context) error, error) {
		lk, err := mu.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return lk.Unlock, nil
	}
}

func upstreamMutexes(e *env, n int) ([]contender, error) {
	sessions, err := e.upstreamSessions(n)
	var all []contender
	for _, s := range sessions {
		all = append(all, upstreamContender(concurrency.NewMutex(s, e.name)))
	}
	return all, err
}

func upstreamContender(mu *concurrency.Mutex) contender {
	return func(ctx context.Context) (func(context.Context) error, error) { return mu.Unlock, mu.Lock(ctx) }
}
