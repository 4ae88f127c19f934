package robustness

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Writers, holdfast's and etcd's own, hold alone.
func TestReadersAndEtcdMutexExcludeEachOther(t *testing.T) {
	t.Parallel()
	const each, times, prefix = 3, 12, "/legacy/shared"
	srv := etcdtest.Start(t)
	var readers, writers atomic.Int32
	enter := func(kind *atomic.Int32) (leave func(), err error) {
		kind.Add(1)
		r, w := readers.Load(), writers.Load()
		if w > 1 || w == 1 && r > 0 {
			err = fmt.Errorf("%d readers and %d writers hold", r, w)
		}
		return func() { kind.Add(-1) }, err
	}
	var wg sync.WaitGroup
	repeat := func(hold func() error) {
		wg.Go(func() {
			for range times {
				if err := hold(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range each {
		rw := locker.NewRWMutexAt(open(t, srv.Client(t), session.Options{}), prefix)
		reading := func(context.Context, *locker.ReadLock) error {
			leave, err := enter(&readers)
			defer leave()
			return err
		}
		repeat(func() error { return rw.RDo(deadline(t), reading) })
		repeat(func() error { return rw.RDo(deadline(t), reading) })
		repeat(func() error {
			return rw.Do(deadline(t), func(context.Context, *locker.Lock) error {
				leave, err := enter(&writers)
				defer leave()
				return err
			})
		})
	}
	etcdSess, err := concurrency.NewSession(srv.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcdSess.Close() })
	repeat(func() error {
		mu := concurrency.NewMutex(etcdSess, prefix)
		if err := mu.Lock(deadline(t)); err != nil {
			return err
		}
		leave, err := enter(&writers)
		leave()
		if err != nil {
			return err
		}
		return mu.Unlock(deadline(t))
	})
	wg.Wait()
}

// Many readers of one session hold at the same time on a real etcd, and none is left.
func TestReadersOfOneSessionHoldTogether(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	rw := locker.NewRWMutex(open(t, srv.Client(t), session.Options{}), "table")
	const n = 50
	var all, wg sync.WaitGroup
	all.Add(n)
	for range n {
		wg.Go(func() {
			err := rw.RDo(deadline(t), func(ctx context.Context, _ *locker.ReadLock) error {
				all.Done()
				all.Wait() // until each of them holds
				return context.Cause(ctx)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	lk, err := rw.TryLock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
}
