package locker_test

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

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
