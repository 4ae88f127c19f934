package locker_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// Scenario 11.
func TestConcurrentUnlocksSendOneRelease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(p.Sess, "x"))
		synctest.Wait()
		before := p.Link.Count()["Txn"]
		var ended sync.WaitGroup
		for range 30 {
			ended.Go(func() {
				_, _, _ = lk.Token(), lk.Check(), lk.Holding()
				if err := lk.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		ended.Wait()
		if n := p.Link.Count()["Txn"] - before; n != 1 {
			t.Errorf("%d Txns for one release", n)
		}
	})
}
