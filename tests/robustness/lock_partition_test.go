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

// Scenario 33: clients that reach only a minority of the members neither acquire nor release, and their calls end by
// their contexts. A leader in the minority takes itself for the leader for a while.
func TestMinorityLeaderNeitherGrantsNorReleasesLocks(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
	leader, _ := leaderAndOthers(t, cluster)
	checkMinorityDecidesNothing(t, cluster, leader)
}

// Scenario 33: a follower in the minority forwards requests, some of which arrive when the partition has healed.
func TestMinorityFollowerNeitherGrantsNorReleasesLocks(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
	leader, _ := leaderAndOthers(t, cluster)
	for _, follower := range cluster.Members() {
		if follower != leader {
			checkMinorityDecidesNothing(t, cluster, follower)
			return
		}
	}
}

func checkMinorityDecidesNothing(t *testing.T, cluster *etcdtest.Cluster, minority *etcdtest.Server) {
	t.Helper()
	here, there := minority.Client(t), clientTo(t, endpointsExcept(cluster, minority)...)
	long := session.Options{TTL: 60 * time.Second}
	contender, trier, majority := open(t, here, long), open(t, here, long), open(t, there, long)
	held := lock(t, open(t, here, session.Options{TTL: 3 * time.Second}), "x")
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
		endsByDeadline(t, "Lock "+name, func(ctx context.Context) error {
			_, err := locker.NewMutex(contender, name).Lock(ctx)
			return err
		})
		endsByDeadline(t, "TryLock "+name, func(ctx context.Context) error {
			_, err := locker.NewMutex(trier, name).TryLock(ctx)
			if errors.Is(err, locker.ErrLocked) {
				t.Errorf("TryLock %s reports a holder without a quorum: %v", name, err)
			}
			return err
		})
	}
	endsByDeadline(t, "Unlock", func(ctx context.Context) error {
		err := other.Unlock(ctx)
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Unlock does not report an unknown outcome: %v", err)
		}
		return err
	})

	began := <-acquired
	if next == nil {
		return
	}
	if margin := began.Sub(<-told); margin <= 0 {
		t.Errorf("the holder was told %v after another client acquired", -margin)
	}
	if err := held.Check(); !errors.Is(err, holdfast.ErrLost) || next.Token() <= held.Token() {
		t.Errorf("token %v after %v; Check: %v", next.Token(), held.Token(), err)
	}
	if !hasKey(t, here, held.Key()) {
		t.Error("the test proves nothing: the minority has received the writes of the majority")
	}
	cluster.Heal()
	unlock(t, next)
	// The failed calls have left no entries: the contender can lock again and does not queue behind itself.
	for _, name := range []string{"x", "free", "other"} {
		unlock(t, lock(t, contender, name))
		cluster.WaitForKeys(t, "holdfast/lock/"+name+"/@/", 0)
	}
}
