package locker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Invariants 1 and 2. The lock of a partitioned holder is lost before another client acquires it, and stays lost after
// the network is back.
func TestPartitionedHolderLosesTheLockBeforeAnotherAcquires(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 2 * time.Second})
	other := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	hctx, cancel := lk.WithContext(t.Context())
	defer cancel()
	canceled := make(chan time.Time, 1)
	context.AfterFunc(hctx, func() { canceled <- time.Now() })
	link.BlackHole()
	next, err := locker.NewMutex(other, "x").Lock(deadline(t))
	acquired := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	margin := acquired.Sub(<-canceled)
	t.Logf("canceled %v before the other acquired", margin)
	if margin <= 0 {
		t.Errorf("canceled %v after the other acquired", -margin)
	}
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired || lost.Name != "x" ||
		lost.Lease != lk.Lease() {
		t.Errorf("Check: %v", err)
	}
	if !errors.As(context.Cause(hctx), &lost) {
		t.Errorf("cause of the lock's context: %v", context.Cause(hctx))
	}
	if next.Token() <= lk.Token() {
		t.Errorf("token %v after %v", next.Token(), lk.Token())
	}
	if _, err := etcdfence.NewWriter(lk).Put(deadline(t), "data", "stale"); !errors.As(err, &lost) {
		t.Errorf("guarded write: %v", err)
	}
	link.Heal()
	eventually(t, "the session has a new lease", func() bool { return sess.Check() == nil })
	if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the lock is no longer lost: %v", err)
	}
	if err := lk.Unlock(deadline(t)); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 1 || kvs[0].CreateRevision != int64(next.Token()) {
		t.Errorf("entries %v", kvs)
	}
}

// Scenario 21: the holder notices, the waiter acquires, and the guarded write is rejected.
func TestHolderNoticesThatItsEntryWasDeleted(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{TTL: 60 * time.Second})
	other := open(t, srv.Client(t), session.Options{TTL: 60 * time.Second})
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	next := lockLater(deadline(t), locker.NewMutex(other, "x"))
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 2)
	if _, err := srv.Client(t).Delete(deadline(t), lk.Key()); err != nil {
		t.Fatal(err)
	}
	if r := <-next; r.err != nil {
		t.Error(r.err)
	}
	if _, err := etcdfence.NewWriter(lk).Put(deadline(t), "data", "stale"); !errors.Is(err, fencing.ErrStale) &&
		!errors.Is(err, holdfast.ErrLost) {
		t.Errorf("guarded write: %v", err)
	}
	select {
	case <-lk.Done():
	case <-deadline(t).Done():
		t.Fatal("the holder has not noticed")
	}
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
		t.Errorf("Check: %v", err)
	}
	if err := sess.Check(); err != nil {
		t.Errorf("the session is unaffected, but Check returned %v", err)
	}
}

// Invariant 6. The entry of a waiter is deleted while it waits. When the entry ahead is removed, it must not
// believe that it holds the lock.
func TestWaiterQueuesAgainAfterItsEntryIsDeleted(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := open(t, srv.Client(t), session.Options{})
	b := open(t, srv.Client(t), session.Options{})
	held := mustLock(t, locker.NewMutex(a, "x"))
	waiter := lockLater(deadline(t), locker.NewMutex(b, "x"))
	kvs := srv.WaitForKeys(t, "holdfast/lock/x/@/", 2)
	if _, err := srv.Client(t).Delete(deadline(t), string(kvs[1].Key)); err != nil {
		t.Fatal(err)
	}
	if err := held.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	r := <-waiter
	if r.err != nil {
		t.Fatal(r.err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 1 || kvs[0].CreateRevision != int64(r.lk.Token()) {
		t.Errorf("holds token %v, entries %v", r.lk.Token(), kvs)
	}
}

// Scenarios 17 and 18, upstream issue 19597: the lease of a waiter is revoked while it waits. It queues again with the
// next lease, and holds the lock only while its entry exists.
func TestWaiterQueuesAgainUnderANewLeaseAfterRevocation(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := open(t, srv.Client(t), session.Options{})
	b := open(t, srv.Client(t), session.Options{})
	held := mustLock(t, locker.NewMutex(a, "x"))
	old := b.Lease()
	waiter := lockLater(deadline(t), locker.NewMutex(b, "x"))
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 2)
	srv.Revoke(t, old)
	if err := held.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	r := <-waiter
	if r.err != nil {
		t.Fatal(r.err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 1 || kvs[0].CreateRevision != int64(r.lk.Token()) || r.lk.Lease() == old {
		t.Errorf("holds token %v on lease %x (was %x), entries %v", r.lk.Token(), r.lk.Lease(), old, kvs)
	}
}

// A goroutine that lost its lock does not block the other goroutines of its session, even if it never calls Unlock.
func TestLostHolderDoesNotBlockItsOwnSession(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	mu := locker.NewMutex(sess, "x")
	lk := mustLock(t, mu)
	srv.Revoke(t, lk.Lease())
	next := mustLock(t, mu)
	if !errors.Is(lk.Check(), holdfast.ErrLost) || next.Check() != nil || next.Token() <= lk.Token() {
		t.Errorf("old: %v, new: %v", lk.Check(), next.Check())
	}
}

func TestHoldEndsAfterMaxHold(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	mu := locker.NewMutex(sess, "x").With(locker.Options{MaxHold: 100 * time.Millisecond})
	lk := mustLock(t, mu)
	next := mustLock(t, locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x"))
	var lost *holdfast.LostError
	if err := lk.Unlock(deadline(t)); !errors.As(err, &lost) || lost.Cause != holdfast.CauseMaxHold {
		t.Errorf("Unlock: %v", err)
	}
	if next.Token() <= lk.Token() {
		t.Errorf("token %v after %v", next.Token(), lk.Token())
	}
}

func TestCancelOnSuspendedCancelsContexts(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 6 * time.Second})
	strict := mustLock(t, locker.NewMutex(sess, "strict").With(locker.Options{CancelOnSuspended: true}))
	lax := mustLock(t, locker.NewMutex(sess, "lax"))
	strictCtx, cancel := strict.WithContext(t.Context())
	defer cancel()
	laxCtx, cancel := lax.WithContext(t.Context())
	defer cancel()
	link.BlackHole()
	<-strictCtx.Done()
	if cause := context.Cause(strictCtx); !errors.Is(cause, holdfast.ErrSuspended) {
		t.Errorf("cause %v", cause)
	}
	if laxCtx.Err() != nil || !errors.Is(lax.Check(), holdfast.ErrSuspended) {
		t.Errorf("lax: %v, %v", context.Cause(laxCtx), lax.Check())
	}
	link.Heal()
	eventually(t, "the session is connected again", func() bool { return lax.Check() == nil })
	if lax.Unlock(deadline(t)) != nil || strict.Unlock(deadline(t)) != nil {
		t.Error("a lock was lost by a suspension")
	}
}

// Invariant 9 across a restart of etcd. Scenario 29 for one member.
func TestTokensGrowAcrossARestartOfEtcd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{TTL: 30 * time.Second})
	mu := locker.NewMutex(sess, "x")
	lk := mustLock(t, mu)
	srv.Stop()
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := lk.Check(); err != nil {
		t.Errorf("lost by a restart that took less than the TTL: %v", err)
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	next := mustLock(t, mu)
	if next.Token() <= lk.Token() {
		t.Errorf("token %v after %v", next.Token(), lk.Token())
	}
}

// Invariant 9 with an operator's epoch, also for waiters that queued before it was set.
func TestTokensGrowAcrossAnEpoch(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := open(t, srv.Client(t), session.Options{})
	b := open(t, srv.Client(t), session.Options{})
	first := mustLock(t, locker.NewMutex(a, "x"))
	queued := lockLater(deadline(t), locker.NewMutex(b, "x"))
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 2)
	setEpoch(t, srv, "3")
	if err := first.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	before := <-queued
	if before.err != nil || before.lk.Token() <= first.Token() || before.lk.Token().Epoch() != 0 {
		t.Fatalf("queued before the epoch: %+v", before)
	}
	queued = lockLater(deadline(t), locker.NewMutex(a, "x"))
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 2)
	if err := before.lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if after := <-queued; after.err != nil || after.lk.Token() <= before.lk.Token() || after.lk.Token().Epoch() != 3 {
		t.Errorf("queued after the epoch: %+v", after)
	}
}

// Invariant 9: the reply to the put is lost, and all requests that follow; another session queues behind the entry,
// the epoch is set, and only then does a read or a retry find the entry. With the epoch that it reads, its token would
// be larger than that of its successor.
func TestEpochSetBetweenAPutAndItsRetryIsNotUsed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	a := open(t, link.Client(), session.Options{})
	b := open(t, srv.Client(t), session.Options{})
	var sent atomic.Int32
	link.LoseReply("Txn", 1, codes.Unavailable)
	link.LoseRequest("Txn", 0, func(any) bool { return sent.Add(1) > 1 })
	first := lockLater(deadline(t), locker.NewMutex(a, "x"))
	kvs := srv.WaitForKeys(t, "holdfast/lock/x/@/", 1)
	behind := lockLater(deadline(t), locker.NewMutex(b, "x"))
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 2)
	setEpoch(t, srv, "3")
	link.Heal()
	// The first session gives its entry up and queues again, last.
	var next result
	select {
	case next = <-behind:
	case r := <-first:
		t.Fatalf("not queued again: %+v", r)
	}
	if next.err != nil || next.lk.Token().Epoch() != 0 || next.lk.Token().Revision() <= kvs[0].CreateRevision {
		t.Fatalf("behind: %+v", next)
	}
	if err := next.lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if r := <-first; r.err != nil || r.lk.Token() <= next.lk.Token() || r.lk.Token().Epoch() != 3 {
		t.Errorf("queued again: %+v", r)
	}
}

func setEpoch(t *testing.T, srv *etcdtest.Server, epoch string) {
	t.Helper()
	if _, err := srv.Client(t).Put(deadline(t), "holdfast/epoch", epoch); err != nil {
		t.Fatal(err)
	}
}

func TestNonNumericEpochIsAnError(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	setEpoch(t, srv, "one")
	if _, err := locker.NewMutex(sess, "x").Lock(deadline(t)); err == nil ||
		!strings.Contains(err.Error(), "holdfast/epoch") {
		t.Errorf("Lock: %v", err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
}
