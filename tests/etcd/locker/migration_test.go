package locker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

const oldPrefix, newName = "/app/locks/report", "report"

// migrating is a process of a fleet that migrates as docs/migrating.md says. Each release of it has another way to call
// a function while it holds.
type migrating struct {
	etcd *concurrency.Session
	at   *locker.Mutex // of etcd's prefix
	new  *locker.Mutex
}

func startProcess(t *testing.T, cli *clientv3.Client) *migrating {
	t.Helper()
	etcdSess, err := concurrency.NewSession(cli)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcdSess.Close() })
	sess := open(t, cli, session.Options{})
	return &migrating{etcdSess, locker.NewMutexAt(sess, oldPrefix), locker.NewMutex(sess, newName)}
}

type work = func(context.Context, *locker.Lock) error

func (p *migrating) withEtcdMutex(ctx context.Context, fn work) error {
	mu := concurrency.NewMutex(p.etcd, oldPrefix)
	if err := mu.Lock(ctx); err != nil {
		return err
	}
	return errors.Join(fn(ctx, nil), mu.Unlock(ctx))
}

func (p *migrating) withPrefix(ctx context.Context, fn work) error { return p.at.Do(ctx, fn) }

func (p *migrating) withBoth(ctx context.Context, fn work) error {
	return p.at.Do(ctx, func(ctx context.Context, _ *locker.Lock) error { return p.new.Do(ctx, fn) })
}

func (p *migrating) withNewName(ctx context.Context, fn work) error { return p.new.Do(ctx, fn) }

// Scenario 45: every rollout of docs/migrating.md has two releases side by side.
func TestEachReleaseOfAMigrationExcludesTheOneBefore(t *testing.T) {
	t.Parallel()
	const each = 3
	times := rounds.Of(8, 3)
	type release = func(*migrating, context.Context, work) error
	for name, side := range map[string][2]release{
		"etcd's mutex, then the prefix": {(*migrating).withEtcdMutex, (*migrating).withPrefix},
		"etcd's mutex, then both locks": {(*migrating).withEtcdMutex, (*migrating).withBoth},
		"the prefix, then both locks":   {(*migrating).withPrefix, (*migrating).withBoth},
		"both locks, then the name":     {(*migrating).withBoth, (*migrating).withNewName},
	} {
		t.Run(name, func(t *testing.T) {
			srv := etcdtest.Start(t)
			var holders, holds atomic.Int32
			fn := func(context.Context, *locker.Lock) error {
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold", n)
				}
				holds.Add(1)
				holders.Add(-1)
				return nil
			}
			var wg sync.WaitGroup
			for range each {
				for _, hold := range side {
					p := startProcess(t, srv.Client(t))
					wg.Go(func() {
						for range times {
							if err := hold(p, deadline(t), fn); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			if n := holds.Load(); n != int32(2*each*times) {
				t.Errorf("%d holds, want %d", n, 2*each*times)
			}
		})
	}
}

// Why the migration needs the release that takes both locks, and one rollout for each.
func TestReleasesOfAMigrationThatAreTwoApartHoldTogether(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	before, after := startProcess(t, srv.Client(t)), startProcess(t, srv.Client(t))
	together := false
	err := before.withPrefix(deadline(t), func(context.Context, *locker.Lock) error {
		return after.new.TryDo(deadline(t), func(context.Context, *locker.Lock) error {
			together = true
			return nil
		})
	})
	if err != nil || !together {
		t.Errorf("together: %v, %v", together, err)
	}
}

// While a migration takes both locks, a client that has waited at the prefix since before has a smaller token than the
// one that holds both.
func TestTokensOfTwoNamesAreNotInTheOrderOfTheHolds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a, b := startProcess(t, srv.Client(t)), startProcess(t, srv.Client(t))
	waited := make(chan error, 1)
	var first, second *locker.Lock
	err := a.at.Do(deadline(t), func(ctx context.Context, _ *locker.Lock) error {
		ctx2 := deadline(t)
		go func() { // ends with its lock
			waited <- b.withPrefix(ctx2, func(_ context.Context, lk *locker.Lock) error {
				second = lk
				return nil
			})
		}()
		srv.WaitForKeys(t, oldPrefix+"/", 2)
		return a.new.Do(ctx, func(_ context.Context, lk *locker.Lock) error {
			first = lk
			return nil
		})
	})
	if err := errors.Join(err, <-waited); err != nil {
		t.Fatal(err)
	}
	if first.Token() <= second.Token() {
		t.Errorf("token %v, then %v", first.Token(), second.Token())
	}
}

// "/x/" is another lock than "/x", for etcd's own clients, too. Every key below "/x/" is an entry of "/x", so "/x"
// waits for the holder of "/x/", but not the other way round.
func TestPrefixWithASlashIsAnotherLock(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := startProcess(t, srv.Client(t))
	slash := locker.NewMutexAt(open(t, srv.Client(t), session.Options{}), oldPrefix+"/")

	theirs := concurrency.NewMutex(p.etcd, oldPrefix)
	if err := theirs.Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.at.TryLock(deadline(t)); !errors.Is(err, locker.ErrLocked) {
		t.Errorf("the same prefix: %v", err)
	}
	beside, err := slash.TryLock(deadline(t))
	if err != nil {
		t.Fatalf("the prefix with a slash: %v; want it to be held beside", err)
	}
	if err := theirs.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := theirs.TryLock(deadline(t)); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("etcd's mutex without the slash, while the one with it is held: %v", err)
	}
	theirSlash := concurrency.NewMutex(p.etcd, oldPrefix+"/")
	if err := theirSlash.TryLock(deadline(t)); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("etcd's mutex with the same slash: %v", err)
	}
	if err := beside.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
}
