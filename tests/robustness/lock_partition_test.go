package robustness

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 33: what reaches only a minority decides nothing, and learns in time that it does not.

// A leader in the minority believes in itself for a while.
func TestLocksThroughALeaderInAMinorityDecideNothing(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	leader, _ := leaderAndOthers(t, cluster)
	decidesNothing(t, cluster, leader)
}

// A follower passes on what it is sent, and some of that arrives when the partition has healed.
func TestLocksThroughAFollowerInAMinorityDecideNothing(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	leader, _ := leaderAndOthers(t, cluster)
	for _, follower := range cluster.Members() {
		if follower != leader {
			decidesNothing(t, cluster, follower)
			return
		}
	}
}

func decidesNothing(t *testing.T, cluster *etcdtest.Cluster, minority *etcdtest.Server) {
	t.Helper()
	here, there := minority.Client(t), clientTo(t, addressesBut(cluster, minority)...)
	long := session.Options{TTL: 60 * time.Second, Retry: quick}
	contender, trier, majority := open(t, here, long), open(t, here, long), open(t, there, long)
	held := lock(t, open(t, here, session.Options{TTL: 3 * time.Second, Retry: quick}), "x")
	other := lock(t, contender, "other")
	hctx, cancel := held.WithContext(t.Context())
	defer cancel()
	told := make(chan time.Time, 1)
	context.AfterFunc(hctx, func() { told <- time.Now() })

	cluster.Partition(minority)
	acquired := make(chan time.Time, 1)
	var next *locker.Lock
	go func() { // joined below
		var err error
		if next, err = locker.NewMutex(majority, "x").Lock(deadline(t)); err != nil {
			t.Error(err)
		}
		acquired <- time.Now()
	}()
	for _, name := range []string{"x", "free"} {
		endsByItsDeadline(t, "Lock "+name, func(ctx context.Context) error {
			_, err := locker.NewMutex(contender, name).Lock(ctx)
			return err
		})
		endsByItsDeadline(t, "TryLock "+name, func(ctx context.Context) error {
			_, err := locker.NewMutex(trier, name).TryLock(ctx)
			if errors.Is(err, locker.ErrLocked) {
				t.Errorf("TryLock %s knows who holds it: %v", name, err)
			}
			return err
		})
	}
	endsByItsDeadline(t, "Unlock", func(ctx context.Context) error {
		err := other.Unlock(ctx)
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Unlock knows its outcome: %v", err)
		}
		return err
	})

	began := <-acquired
	if next == nil {
		return
	}
	if margin := began.Sub(<-told); margin <= 0 {
		t.Errorf("the holder was told %v after another had acquired", -margin)
	}
	if err := held.Check(); !errors.Is(err, holdfast.ErrLost) || next.Token() <= held.Token() {
		t.Errorf("token %v after %v; Check: %v", next.Token(), held.Token(), err)
	}
	if !stands(t, here, held.Key()) {
		t.Error("this test has gone blind: the minority has heard of the others")
	}
	cluster.Heal()
	unlock(t, next)
	// Whatever the minority was asked for is undone or done: who asked can lock again, and queues behind nothing of its own.
	for _, name := range []string{"x", "free", "other"} {
		unlock(t, lock(t, contender, name))
		cluster.WaitForKeys(t, "holdfast/lock/"+name+"/@/", 0)
	}
}
