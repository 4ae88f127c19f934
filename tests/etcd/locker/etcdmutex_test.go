package locker_test

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
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

// Scenario 45: a fleet that migrates from etcd's mutex to this module's. Both
// contend on one prefix, and the order of the holds is the order of the entries in
// etcd's history.
func TestMutexAndEtcdMutexExcludeEachOtherInFIFOOrder(t *testing.T) {
	t.Parallel()
	const each, prefix = 4, "/legacy/lock"
	times := rounds.Of(12, 5)
	srv := etcdtest.Start(t)
	record := srv.Record(t, prefix+"/")
	var order []int64 // create revisions in the order of the holds, protected by the lock under test
	var wg sync.WaitGroup
	for range each {
		mu := locker.NewMutexAt(open(t, srv.Client(t), session.Options{}), prefix)
		wg.Go(func() {
			for range times {
				err := mu.Do(deadline(t), func(_ context.Context, lk *locker.Lock) error {
					order = append(order, int64(lk.Token()))
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
		etcdSess, err := concurrency.NewSession(srv.Client(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = etcdSess.Close() })
		wg.Go(func() {
			for range times {
				mu := concurrency.NewMutex(etcdSess, prefix)
				if err := mu.Lock(deadline(t)); err != nil {
					t.Error(err)
					return
				}
				order = append(order, testkit.CreateRevision(t, etcdSess.Client(), mu.Key()))
				if err := mu.Unlock(deadline(t)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	var queued []int64
	for _, ev := range record.Events(t) {
		if ev.IsCreate() {
			queued = append(queued, ev.Kv.CreateRevision)
		}
	}
	if len(order) != 2*each*times {
		t.Errorf("%d holds, want %d", len(order), 2*each*times)
	}
	if fmt.Sprint(order) != fmt.Sprint(queued) {
		t.Errorf("held in the order\n%v\nqueued in the order\n%v", order, queued)
	}
}

// Writers, holdfast's and etcd's own, hold alone.
func TestReadersAndEtcdMutexExcludeEachOther(t *testing.T) {
	t.Parallel()
	const each, prefix = 3, "/legacy/shared"
	times := rounds.Of(12, 5)
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
