package locker_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestLockCheckDoesNotAllocate(t *testing.T) {
	srv := etcdtest.Start(t)
	lk := mustLock(t, locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x"))
	n := testing.AllocsPerRun(1000, func() { _ = lk.Check() })
	for range 2 { // etcd, in this process, may allocate meanwhile
		n = min(n, testing.AllocsPerRun(1000, func() { _ = lk.Check() }))
	}
	if n != 0 {
		t.Errorf("%v allocations per Check", n)
	}
}
