package robustness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

const entriesOfLockX = "holdfast/lock/x/@/"

func lock(t *testing.T, sess *session.Session, name string) *locker.Lock {
	t.Helper()
	lk, err := locker.NewMutex(sess, name).Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// lockLater starts to acquire the lock x and returns when the queue has n entries.
func lockLater(t *testing.T, cluster *etcdtest.Cluster, sess *session.Session, n int) <-chan *locker.Lock {
	t.Helper()
	acquired := make(chan *locker.Lock, 1)
	go func() { // ends by its deadline
		lk, err := locker.NewMutex(sess, "x").Lock(throughout(t))
		if err != nil {
			t.Error(err)
		}
		acquired <- lk
	}()
	cluster.WaitForKeys(t, entriesOfLockX, n)
	return acquired
}

func unlock(t *testing.T, lk *locker.Lock) {
	t.Helper()
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
}

// mustHold checks that a lock is held and that its identity is still want.
func mustHold(t *testing.T, when string, lk *locker.Lock, sess *session.Session, want string) {
	t.Helper()
	if err := lk.Check(); err != nil || lk.Lease() != sess.Lease() || identity(lk) != want {
		t.Errorf("%s: %s, want %s; Check: %v", when, identity(lk), want, err)
	}
}

// identity returns what must not change while a lock is held.
func identity(lk *locker.Lock) string {
	return fmt.Sprintf("token %v, lease %x, key %s", lk.Token(), lk.Lease(), lk.Key())
}

// surviving is the TTL of sessions that must outlive what happens to their cluster. That takes some seconds, and much
// longer on a busy machine.
const surviving = 30 * time.Second

// Scenario 29.
func TestLockSurvivesEtcdLeaderFailure(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	opts := session.Options{TTL: surviving}
	sess := open(t, cluster.Client(t), opts)
	lk := lock(t, sess, "x")
	kept := identity(lk)
	second := lockLater(t, cluster, open(t, cluster.Client(t), opts), 2)
	third := lockLater(t, cluster, open(t, cluster.Client(t), opts), 3)
	leader, _ := leaderAndOthers(t, cluster)
	leader.Stop()
	awaitRenewal(t, sess)
	mustHold(t, "after the failure of the leader", lk, sess, kept)
	if len(second)+len(third) != 0 {
		t.Fatal("a waiter holds the lock, too")
	}
	unlock(t, lk)
	next := <-second
	if next == nil || next.Token() <= lk.Token() || len(third) != 0 {
		t.Fatalf("after %s: second waiter %v, %d of the third", kept, next, len(third))
	}
	unlock(t, next)
	if last := <-third; last == nil || last.Token() <= next.Token() {
		t.Errorf("after token %v the third waiter has %v", next.Token(), last)
	}
}

// Scenario 31.
func TestLockIsSuspendedWithoutAQuorumAndResumes(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	events := make(chan session.Event, 10)
	sess := open(t, cluster.Client(t), session.Options{
		TTL: surviving, OnStateChange: func(ev session.Event) { events <- ev },
	})
	lk := lock(t, sess, "x")
	kept := identity(lk)
	members := cluster.Members()[:2]
	for _, m := range members {
		m.Stop()
	}
	if ev := <-events; ev.State != holdfast.Suspended || ev.Lease != lk.Lease() {
		t.Fatalf("first event %+v", ev)
	}
	if err := lk.Check(); !errors.Is(err, holdfast.ErrSuspended) {
		t.Errorf("Check: %v", err)
	}
	restart(t, members...)
	if ev := <-events; !ev.Reconnected() || ev.Lease != lk.Lease() {
		t.Fatalf("second event %+v", ev)
	}
	mustHold(t, "connected again", lk, sess, kept)
	if kvs := cluster.WaitForKeys(t, entriesOfLockX, 1); string(kvs[0].Key) != lk.Key() {
		t.Errorf("entries %v", kvs)
	}
	unlock(t, lk)
}

// Scenario 32.
func TestLockIsLostWithoutAQuorumThoughItsEntryRemains(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	sess := open(t, cluster.Client(t), session.Options{TTL: ttl})
	lk := lock(t, sess, "x")
	stopped, stays := cluster.Members()[:2], cluster.Member(2).Client(t)
	await(t, "all members have the entry", func() bool { return hasKey(t, stays, lk.Key()) })
	for _, m := range stopped {
		m.Stop()
	}
	<-lk.Done()
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
		t.Fatalf("Check: %v", err)
	}
	// The session trusts its lease until a tenth of the TTL before that can expire. A busy machine may tell it later.
	if lost.Since < ttl*9/10 {
		t.Errorf("lost %v after the last renewal", lost.Since)
	}
	if !hasKey(t, stays, lk.Key()) {
		t.Error("the test proves nothing: the entry is gone, though no quorum could delete it")
	}
	restart(t, stopped...)
	await(t, "the session has a new lease", func() bool { return sess.Check() == nil })
	if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) || sess.Lease() == lk.Lease() {
		t.Errorf("Check of the lost lock, while the session has lease %x: %v", sess.Lease(), err)
	}
	if err := lk.Unlock(deadline(t)); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	again := lock(t, sess, "x")
	if again.Lease() != sess.Lease() || again.Token() <= lk.Token() {
		t.Errorf("acquired again: %s", identity(again))
	}
	unlock(t, again)
}

// Scenario 36, in which a waiter keeps its place, too.
func TestLockSurvivesARollingRestartAndAMemberReplacement(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	opts := session.Options{TTL: surviving}
	sess := open(t, cluster.Client(t), opts)
	lk := lock(t, sess, "x")
	kept := identity(lk)
	waiting := lockLater(t, cluster, open(t, cluster.Client(t), opts), 2)
	place := string(cluster.Keys(t, entriesOfLockX)[1].Key)
	maintain(t, cluster, func(step string) {
		awaitRenewal(t, sess)
		mustHold(t, "after the "+step, lk, sess, kept)
	})
	if len(waiting) != 0 {
		t.Fatal("a waiter holds the lock, too")
	}
	unlock(t, lk)
	if next := <-waiting; next != nil && next.Key() != place {
		t.Errorf("the waiter queued as %s and acquired as %s", place, next.Key())
	}
}

// The client's connection to one member stays open but carries nothing. Requests that the client sends there have to be
// repeated on another member.
func TestLocksWorkWhileOneMemberIsUnreachable(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true}) // stable on a busy machine
	leader, others := leaderAndOthers(t, cluster)
	link := leader.Link(t)
	cli := clientTo(t, append(link.Endpoints(), others...)...)
	sess := open(t, cli, session.Options{TTL: 15 * time.Second})
	lk := lock(t, sess, "x")
	kept := identity(lk)
	link.BlackHole()
	await(t, "the client has sent a request to the unreachable member", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := cli.Get(ctx, "x")
		return err != nil
	})
	for range 4 { // a third of the requests of each go to the unreachable member
		unlock(t, lock(t, sess, "y"))
		cluster.WaitForKeys(t, "holdfast/lock/y/@/", 0)
	}
	for range 2 {
		awaitRenewal(t, sess)
		mustHold(t, "with an unreachable member", lk, sess, kept)
	}
	unlock(t, lk)
	cluster.WaitForKeys(t, entriesOfLockX, 0)
}
