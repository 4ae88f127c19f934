package locker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// overLink starts etcd, and a session over a link that can lose and delay its requests.
func overLink(t *testing.T, o session.Options) (*etcdtest.Server, *etcdtest.Link, *session.Session) {
	t.Helper()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	return srv, link, open(t, link.Client(), o)
}

// quiet has a session poll so rarely that on a slow machine, too, the next Txn is the one that the test is about.
var quiet = session.Options{TTL: 10 * time.Minute, LockDelay: time.Minute}

// Invariant 3, scenario 1: the acquire commits, but its reply is lost.
func TestAcquireWithLostReplyFindsItsOwnEntry(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	gate := knownGate(t, srv, sess)
	link.LoseReply("Txn", 2, codes.Unavailable, putsEntry)
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
	// The unanswered request may still arrive. Rewriting the session key makes it fail.
	awaitRewrite(t, srv, sess, gate)
}

func sessionKey(t *testing.T, srv *etcdtest.Server, sess *session.Session) *mvccpb.KeyValue {
	t.Helper()
	kvs := srv.Keys(t, lease.Open(sess).Lease().Key())
	if len(kvs) != 1 {
		t.Fatalf("session keys: %v", kvs)
	}
	return kvs[0]
}

// knownGate waits until the session knows the mod revision of its session key, which is returned. On a slow machine it
// may have put that twice, and not have the second reply yet. What it then asks compares the first.
func knownGate(t *testing.T, srv *etcdtest.Server, sess *session.Session) (gate int64) {
	t.Helper()
	eventually(t, "the session knows the revision of its key", func() bool {
		gate = sessionKey(t, srv, sess).ModRevision
		return gate == lease.Open(sess).Lease().Gate()
	})
	return gate
}

// putsEntry selects the Txns that put the entry of a lock.
func putsEntry(request any) bool {
	txn, ok := request.(*pb.TxnRequest)
	return ok && slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		return strings.HasPrefix(string(op.GetRequestPut().GetKey()), "holdfast/lock/")
	})
}

// gateOf waits until a Txn that puts an entry is held, and returns the mod revision of the session key that it
// compares.
func gateOf(t *testing.T, late *etcdtest.Held) int64 {
	t.Helper()
	<-late.Arrived()
	for _, cmp := range late.Request().(*pb.TxnRequest).Compare {
		if cmp.Target == pb.Compare_MOD {
			return cmp.GetModRevision()
		}
	}
	t.Fatalf("the held Txn compares no mod revision: %v", late.Request())
	return 0
}

// awaitRewrite waits until the session key was put again after gate, which is what the requests compare that may arrive
// late. On a slow machine it may be put more than once. The revision of the last put is returned.
func awaitRewrite(t *testing.T, srv *etcdtest.Server, sess *session.Session, gate int64) (revision int64) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("gate %d, session key %v; the session: %v; entries %v",
				gate, srv.Keys(t, "holdfast/session/"), sess.Check(), srv.Keys(t, "holdfast/lock/"))
		}
	})
	eventually(t, "the session key is put again", func() bool {
		revision = sessionKey(t, srv, sess).ModRevision
		return revision > gate
	})
	return revision
}

// Scenario 2: the request is lost.
func TestAcquireWithLostRequestIsRetried(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	link.LoseRequest("Txn", 2)
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	if all := intervals(t, srv, "x"); len(all) != 1 || all[0].from != int64(lk.Token()) {
		t.Errorf("entries ever: %v", all)
	}
}

// Invariant 4, scenario 7: the caller gives up while its Txn is in flight, and the Txn arrives long afterwards.
func TestLateAcquireOfACanceledCallerLeavesNoEntry(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	late := link.Hold("Txn", putsEntry)
	ctx, cancel := context.WithCancel(deadline(t))
	done := lockLater(ctx, locker.NewMutex(sess, "x"))
	gate := gateOf(t, late)
	cancel()
	if r := <-done; !errors.Is(r.err, context.Canceled) {
		t.Fatalf("Lock: %v", r.err)
	}
	gate = awaitRewrite(t, srv, sess, gate)
	late.Deliver()
	<-late.Delivered()
	// Before the caller gave up, a repetition may have put the entry. That is removed soon after the rewrite.
	eventually(t, "no entry stands", func() bool { return len(entries(t, srv, "x")) == 0 })
	for _, iv := range intervals(t, srv, "x") {
		if iv.from > gate {
			t.Errorf("the late Txn put an entry: %v", iv)
		}
	}
	if _, err := locker.NewMutex(open(t, srv.Client(t), session.Options{}), "x").TryLock(deadline(t)); err != nil {
		t.Errorf("the lock is not free: %v", err)
	}
}

// Invariant 4: a retry has acquired and released the lock before the first request arrives.
func TestLateAcquireAfterAReleasedRetryLeavesNoEntry(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{})
	late := link.Hold("Txn", putsEntry)
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	gate := gateOf(t, late)
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	awaitRewrite(t, srv, sess, gate)
	late.Deliver()
	<-late.Delivered()
	if all := intervals(t, srv, "x"); len(all) != 1 || all[0].to == 0 {
		t.Errorf("entries ever: %v, want only the released one", all)
	}
}

// A hand-over within a session is one Txn, which removes the holder's entry and puts that of the next.
func TestHandOffWithLostReplyHappensOnce(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, quiet)
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

// The next waiter gives up while the Txn that puts its entry is in flight.
func TestHandOffOnARealEtcdToACanceledCallerGoesToTheNext(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, quiet)
	mu := locker.NewMutex(sess, "x")
	first := mustLock(t, mu)
	ctx, cancel := context.WithCancel(deadline(t))
	canceled := lockBehind(ctx, mu)
	third := lockBehind(deadline(t), mu)

	handOver := link.Hold("Txn")
	link.Stall("Txn") // a second copy, of a busy machine
	unlocked := make(chan error, 1)
	go func() { unlocked <- first.Unlock(deadline(t)) }() // received below
	<-handOver.Arrived()
	cancel()
	if r := <-canceled; !errors.Is(r.err, context.Canceled) {
		t.Errorf("the canceled waiter: %v", r.err)
	}
	link.Heal()
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

// Scenario 8: the acquire returns when its context ends, and is undone after the network is back.
func TestAcquireWhilePartitionedRespectsItsContext(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{TTL: 60 * time.Second})
	gate := knownGate(t, srv, sess)
	link.BlackHole()
	start := time.Now()
	_, err := locker.NewMutex(sess, "x").Lock(soon(t, 300*time.Millisecond))
	if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d > 10*time.Second {
		t.Errorf("after %v: %v", d, err)
	}
	link.Heal()
	awaitRewrite(t, srv, sess, gate)
	eventually(t, "no entry is left", func() bool { return len(entries(t, srv, "x")) == 0 })
}

func TestAcquireWithCanceledContextSendsNothing(t *testing.T) {
	t.Parallel()
	_, link, sess := overLink(t, session.Options{})
	before := link.Count()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range []error{
		second(locker.NewMutex(sess, "x").Lock(canceled)), second(locker.NewMutex(sess, "x").TryLock(canceled)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if sent := link.Count().Since(before); sent["Txn"]+sent["Put"] != 0 {
		t.Errorf("sent %v", sent)
	}
}

// An entry that was removed with its lease is reported as a loss, not as an error of etcd.
func TestUnlockAfterLeaseRevocationReturnsLostError(t *testing.T) {
	t.Parallel()
	srv, link, sess := overLink(t, session.Options{LockDelay: time.Minute})
	link.LoseReply("Txn", 1, codes.Unavailable)
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	srv.Revoke(t, lk.Lease())
	var lost *holdfast.LostError
	if err := lk.Unlock(deadline(t)); !errors.As(err, &lost) || lost.Cause != holdfast.CauseRevoked || lost.Name != "x" {
		t.Errorf("Unlock: %v", err)
	}
}
