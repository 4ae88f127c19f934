package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

// Invariant 13.
func TestUnlockWithCanceledContextReleases(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := lk.Unlock(canceled); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	for _, kv := range entries(t, srv, "x") {
		if holdfast.Token(kv.CreateRevision) == lk.Token() { // not of a copy of the put that came late, on a busy machine
			t.Errorf("the entry remains: %v", kv)
		}
	}
}

// Invariant 13, scenario 5: Unlock returns ErrOutcomeUnknown when its context ends, and the session keeps trying.
func TestUnlockWhilePartitionedReturnsInTimeAndCompletesLater(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 60 * time.Second, CloseTimeout: time.Minute})
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	link.BlackHole()
	start := time.Now()
	err := lk.Unlock(soon(t, 200*time.Millisecond))
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Unlock: %v", err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("Unlock took %v with a context of 200 ms", d)
	}
	if lk.Check() != holdfast.ErrReleased {
		t.Errorf("Check after an unknown Unlock: %v", lk.Check())
	}
	if got := len(entries(t, srv, "x")); got != 1 {
		t.Fatalf("%d entries, want 1: the release must not get through", got)
	}
	link.Heal()
	srv.WaitForKeys(t, "holdfast/lock/x/@/", 0) // long before the lease expires
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Errorf("Unlock after the release was confirmed: %v", err)
	}
}

// Scenario 3: the release commits, but its reply is lost.
func TestUnlockWithLostReplySucceeds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{})
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	link.LoseReply("Txn", 1, codes.Unavailable)
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// Scenario 4, upstream issue 22082.
func TestLateUnlockDoesNotRemoveTheSessionsNextLock(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 60 * time.Second})
	mu := locker.NewMutex(sess, "x")
	lk := mustLock(t, mu)
	late := link.Hold("Txn")
	link.Stall("Txn") // a second copy, of a busy machine
	unlocked := make(chan error, 1)
	ctx, cancel := context.WithCancel(deadline(t))
	go func() { unlocked <- lk.Unlock(ctx) }() // received below
	<-late.Arrived()
	cancel()
	if err := <-unlocked; !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		t.Errorf("Unlock: %v", err)
	}
	link.Heal()
	// The release is still in flight. An administrator deletes the entry, so that the session can acquire again.
	if _, err := srv.Client(t).Delete(deadline(t), lk.Key()); err != nil {
		t.Fatal(err)
	}
	next := lockLater(deadline(t), mu)
	late.Deliver()
	<-late.Delivered()
	r := <-next
	if r.err != nil {
		t.Fatal(r.err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 1 || kvs[0].CreateRevision != int64(r.lk.Token()) {
		t.Errorf("entries %v, want the next lock's", kvs)
	}
}

// Invariant 5, scenario 22: an administrator deletes and recreates the key of a holder. The new entry is not the
// holder's.
func TestUnlockRemovesOnlyItsOwnEntry(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	admin := srv.Client(t)
	if _, err := admin.Delete(deadline(t), lk.Key()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Put(deadline(t), lk.Key(), "another owner's"); err != nil {
		t.Fatal(err)
	}
	var lost *holdfast.LostError
	if err := lk.Unlock(deadline(t)); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
		t.Errorf("Unlock: %v", err)
	}
	if kvs := entries(t, srv, "x"); len(kvs) != 1 || string(kvs[0].Value) != "another owner's" {
		t.Errorf("entries %v: the other owner's entry was removed", kvs)
	}
}

func TestUnlockWithNilContextIsAnArgumentError(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	lk := mustLock(t, locker.NewMutex(sess, "x"))
	var arg *holdfast.ArgumentError
	if err := lk.Unlock(noContext); !errors.As(err, &arg) || lk.Check() != nil {
		t.Errorf("Unlock(nil): %v, Check %v", err, lk.Check())
	}
}

// Scenario 28, invariant 12.
func TestCloseEndsHoldersAndWaitersAndRemovesTheirEntries(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	other := open(t, srv.Client(t), session.Options{})
	held := mustLock(t, locker.NewMutex(sess, "held"))
	theirs := mustLock(t, locker.NewMutex(other, "theirs"))
	inEtcd := lockLater(context.Background(), locker.NewMutex(sess, "theirs"))
	srv.WaitForKeys(t, "holdfast/lock/theirs/@/", 2)
	inLine := lockLater(context.Background(), locker.NewMutex(sess, "held"))
	if err := sess.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []result{<-inEtcd, <-inLine} {
		if !errors.Is(r.err, holdfast.ErrClosed) {
			t.Errorf("waiter: %v", r.err)
		}
	}
	var lost *holdfast.LostError
	if err := held.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseClosed {
		t.Errorf("holder: %v", err)
	}
	if err := held.Unlock(deadline(t)); !errors.As(err, &lost) {
		t.Errorf("Unlock after Close: %v", err)
	}
	if _, err := locker.NewMutex(sess, "more").Lock(deadline(t)); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Lock after Close: %v", err)
	}
	claim := strings.Replace(theirs.Key(), "/@/", "/@claim/", 1)
	if kvs := srv.Keys(t, "holdfast/lock/"); len(kvs) != 2 ||
		string(kvs[0].Key) != theirs.Key() || string(kvs[1].Key) != claim {
		t.Errorf("left behind: %v", kvs)
	}
	if err := sess.Close(deadline(t)); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// A proxy answers Canceled after etcd has carried the removal out. If etcd's client sent it again, the reply to that
// copy would say that the entry is gone, as after a deletion by hand.
func TestReleaseWhoseReplyAProxyLosesIsNoLoss(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	sess := open(t, link.Client(), session.Options{})
	mu := locker.NewMutex(sess, "x")
	lk := mustLock(t, mu)
	link.LoseReply("Txn", 1, codes.Canceled, testkit.IsTxnThatDeletes)
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}

	calls := 0
	err := mu.Do(deadline(t), func(context.Context, *locker.Lock) error {
		calls++
		link.LoseReply("Txn", 1, codes.Canceled, testkit.IsTxnThatDeletes)
		return nil
	})
	if err != nil || calls != 1 {
		t.Errorf("Do: %v, and its function was called %d times", err, calls)
	}

	p, err := locker.NewSemaphore(sess, "z", 1).Acquire(deadline(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	link.LoseReply("Txn", 1, codes.Canceled, testkit.IsTxnThatDeletes)
	if err := p.Release(deadline(t)); err != nil {
		t.Errorf("Release: %v", err)
	}

	d, err := locker.NewRWMutex(sess, "y").LockDowngradable(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	link.LoseReply("Txn", 1, codes.Canceled, testkit.IsTxnThatDeletes)
	reader, err := d.Downgrade(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(reader.Check(), reader.Unlock(deadline(t))); err != nil {
		t.Errorf("Downgrade: %v", err)
	}
}

// A client whose KV was replaced sends a removal twice, unnoticed. Then Unlock cannot tell its own first copy from a
// deletion by hand. A session that repeats its writes itself can.
func TestUnlockTellsARepeatedRemovalFromADeletionByHand(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	for name, c := range map[string]struct {
		replaced bool
		deleted  string // by hand, a prefix of keys; empty: the removal's reply is lost
		want     error
	}{
		"repeated":              {true, "", holdfast.ErrOutcomeUnknown},
		"entry-deleted":         {true, "@/", holdfast.ErrLost},
		"both-deleted":          {true, "@", holdfast.ErrOutcomeUnknown},
		"both-deleted-and-told": {false, "@", holdfast.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			link := srv.Link(t)
			cli := link.Client()
			if c.replaced {
				cli.KV = struct{ clientv3.KV }{cli.KV}
			}
			sess := open(t, cli, quiet)
			// By this reply the session sends no copy of the removal for 0.9 s, and polls in half a second.
			link.Delay(450 * time.Millisecond)
			lk := mustLock(t, locker.NewMutex(sess, name))
			link.Delay(0)
			if c.deleted == "" {
				link.LoseReply("Txn", 1, codes.Canceled, testkit.IsTxnThatDeletes)
			} else if _, err := srv.Client(t).Delete(deadline(t), "holdfast/lock/"+name+"/"+c.deleted,
				clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			if err := lk.Unlock(deadline(t)); !errors.Is(err, c.want) {
				t.Errorf("Unlock: %v, want %v", err, c.want)
			}
			if c.want == holdfast.ErrOutcomeUnknown && lk.Check() != holdfast.ErrReleased {
				t.Errorf("Check: %v", lk.Check())
			}
		})
	}
}
