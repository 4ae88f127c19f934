package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// overLink is an etcd, and a session whose requests can be lost or late.
func overLink(t *testing.T, o session.Options) (*etcdtest.Server, *etcdtest.Link, *session.Session) {
	t.Helper()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	return srv, link, open(t, link.Client(), o)
}

// Invariant 3. Scenario 1: the acquire commits, its reply is lost.
func TestAcquireWithLostReplyFindsItsOwnEntry(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	link.LoseReply("Txn", 2, codes.Unavailable)
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	kvs := entries(t, srv, "x")
	if len(kvs) != 1 || kvs[0].CreateRevision != int64(lk.Token()) || len(intervals(t, srv, "x")) != 1 {
		t.Errorf("entries %v, token %v", kvs, lk.Token())
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
	// A copy that was never answered may still come: the session key keeps it out.
	eventually(t, "the session key is put again", func() bool { return gate(t, srv, sess).Version == 2 })
}

// gate is the session key.
func gate(t *testing.T, srv *etcdtest.Server, sess *session.Session) *mvccpb.KeyValue {
	t.Helper()
	kvs := srv.Keys(t, lease.Open(sess.Ref()).SessionKey(sess.Lease()))
	if len(kvs) != 1 {
		t.Fatalf("session keys: %v", kvs)
	}
	return kvs[0]
}

// Scenario 2: the request never left.
func TestAcquireWithLostRequestIsRetried(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	link.LoseRequest("Txn", 2)
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	if all := intervals(t, srv, "x"); len(all) != 1 || all[0].from != int64(lk.Token()) {
		t.Errorf("entries ever: %v", all)
	}
}

// Invariant 4. Scenario 7: the caller gives up while its Txn is under way, and
// the Txn commits long afterwards.
func TestLateAcquireOfACanceledCallerLeavesNoEntry(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	late := link.Hold("Txn")
	ctx, cancel := context.WithCancel(deadline(t))
	done := lockLater(ctx, locker.NewMutex(sess, "x"))
	<-late.Arrived()
	cancel()
	if r := <-done; !errors.Is(r.err, context.Canceled) {
		t.Fatalf("Lock: %v", r.err)
	}
	eventually(t, "the session key is put again", func() bool { return gate(t, srv, sess).Version == 2 })
	late.Deliver()
	<-late.Delivered()
	if all := intervals(t, srv, "x"); len(all) != 0 {
		t.Errorf("the late Txn put an entry: %v", all)
	}
	if _, err := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x").TryLock(deadline(t)); err != nil {
		t.Errorf("the name is blocked: %v", err)
	}
}

// Invariant 4, the other way round: a retry had acquired and released before
// the first send arrived.
func TestLateAcquireAfterAReleasedRetryLeavesNoEntry(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{Retry: quickAttempts})
	late := link.Hold("Txn")
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	<-late.Arrived()
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session key is put again", func() bool { return gate(t, srv, sess).Version == 2 })
	late.Deliver()
	<-late.Delivered()
	if all := intervals(t, srv, "x"); len(all) != 1 || all[0].to == 0 {
		t.Errorf("entries ever: %v, want the one that was released", all)
	}
}

// The same for a hand-over inside one session: the Txn that removes the
// holder's entry and puts the next one's.
func TestHandOverWithLostReplyHappensOnce(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	mu := locker.NewMutex(sess, "x")
	first := mustLock(t, mu)
	next := lockBehind(deadline(t), mu)
	link.LoseReply("Txn", 1, codes.Unavailable)
	if err := first.Unlock(deadline(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	r := <-next
	if r.err != nil {
		t.Fatal(r.err)
	}
	if all := intervals(t, srv, "x"); len(all) != 2 || all[0].to != all[1].from || all[1].from != int64(r.lk.Token()) {
		t.Errorf("entries ever: %v, token %v", all, r.lk.Token())
	}
	if err := r.lk.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
	if left := entries(t, srv, "x"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The next in line gives up while the entry is being put for it.
func TestHandOverToACanceledCallerGoesToTheNext(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	mu := locker.NewMutex(sess, "x")
	first := mustLock(t, mu)
	ctx, cancel := context.WithCancel(deadline(t))
	leaver := lockBehind(ctx, mu)
	third := lockBehind(deadline(t), mu)

	handOver := link.Hold("Txn")
	unlocked := make(chan error, 1)
	go func() { unlocked <- first.Unlock(deadline(t)) }() // received below
	<-handOver.Arrived()
	cancel()
	if r := <-leaver; !errors.Is(r.err, context.Canceled) {
		t.Errorf("the one that left: %v", r.err)
	}
	handOver.Deliver()
	if err := <-unlocked; err != nil {
		t.Errorf("Unlock: %v", err)
	}
	r := <-third
	if r.err != nil {
		t.Fatal(r.err)
	}
	if all := intervals(t, srv, "x"); len(all) != 3 || all[2].from != int64(r.lk.Token()) || all[1].to != all[2].from {
		t.Errorf("entries ever: %v", all)
	}
}

// A black-holed acquire ends by its context, promptly, and is undone once the
// network is back. Scenario 8.
func TestAcquireWhilePartitionedRespectsItsContext(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{TTL: 60 * time.Second})
	link.BlackHole()
	start := time.Now()
	_, err := locker.NewMutex(sess, "x").Lock(soon(t, 300*time.Millisecond))
	if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d > 5*time.Second {
		t.Errorf("after %v: %v", d, err)
	}
	link.Heal()
	eventually(t, "the session key is put again", func() bool { return gate(t, srv, sess).Version == 2 })
	eventually(t, "nothing is left", func() bool { return len(entries(t, srv, "x")) == 0 })
}

func TestAcquireWithCanceledContextSendsNothing(t *testing.T) {
	t.Parallel()
	_, link, sess := overLink(t, session.Options{})
	before := link.Count()
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range []error{
		second(locker.NewMutex(sess, "x").Lock(dead)), second(locker.NewMutex(sess, "x").TryLock(dead)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if sent := link.Count().Since(before); sent["Txn"]+sent["Put"] != 0 {
		t.Errorf("sent %v", sent)
	}
}

// An entry that went with its lease is a loss, and not some error of etcd's.
func TestUnlockAfterLeaseRevocationReturnsLostError(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	link.LoseReply("Txn", 1, codes.Unavailable)
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	srv.Revoke(t, lk.Lease())
	var lost *holdfast.LostError
	if err := lk.Unlock(deadline(t)); !errors.As(err, &lost) || lost.Cause != holdfast.CauseRevoked || lost.Name != "x" {
		t.Errorf("Unlock: %v", err)
	}
}

// Invariant 4, with an administrator in between: the entry is deleted by hand,
// and then the first send of its acquisition arrives and puts it again, at a
// revision that nobody has been told. Found by the simulation.
func TestEntryRecreatedByALateAcquireIsRemoved(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{Retry: quickAttempts})
	late := link.Hold("Txn")
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	<-late.Arrived()
	if _, err := srv.Client(t).Delete(deadline(t), lk.Key()); err != nil {
		t.Fatal(err)
	}
	late.Deliver()
	<-late.Delivered()
	if kvs := entries(t, srv, "x"); len(kvs) != 1 || kvs[0].CreateRevision == int64(lk.Token()) {
		t.Fatalf("entries %v: the late request has not come through", kvs)
	}
	if err := lk.Unlock(deadline(t)); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 0)
}
