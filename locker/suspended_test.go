package locker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// unrenewed is a connection on which renewals vanish and all else works.
func unrenewed(c etcdfake.Call) etcdfake.Fate {
	return etcdfake.Fate{LoseRequest: c.Method == "LeaseKeepAlive", Silent: true}
}

// A waiter whose lease cannot be proved to live is at the front like any other;
// it must not be told that it holds what it may be about to lose.
func TestWaiterAtTheFrontIsNotGrantedWhileItsLeaseIsSuspended(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.sess, "x"))
		b.link.Plan(unrenewed)
		waiter := lockLater(deadline(t), locker.NewMutex(b.sess, "x"))
		time.Sleep(8 * time.Second)
		if err := b.sess.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatalf("the waiter's session: %v, want suspended", err)
		}
		if err := lk.Unlock(deadline(t)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if kvs := standing(srv, "x"); len(kvs) != 1 || kvs[0].Lease != int64(b.sess.Lease()) {
			t.Fatalf("entries %v, want the waiter's at the front", kvs)
		}
		select {
		case r := <-waiter:
			t.Fatalf("granted while suspended: %v, Check %v", r.err, r.lk.Check())
		default:
		}
		lease := b.sess.Lease()
		b.heal()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.lk.Check() != nil || r.lk.Lease() != lease || !owns(srv, r.lk) {
			t.Errorf("once renewed: Check %v, lease %x (was %x), entries %v", r.lk.Check(), r.lk.Lease(), lease, standing(srv, "x"))
		}
	})
}

// The same waiter, when its lease does not come back: it is not granted on the
// dead one, although its entry is at the front, but queues again.
func TestWaiterAtTheFrontWhoseSuspensionEndsInALossQueuesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.sess, "x"))
		b.link.Plan(unrenewed)
		old := b.sess.Lease()
		waiter := lockLater(deadline(t), locker.NewMutex(b.sess, "x"))
		time.Sleep(8 * time.Second)
		if err := lk.Unlock(deadline(t)); err != nil {
			t.Fatal(err)
		}
		front := standing(srv, "x")[0].CreateRevision
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.lk.Lease() == old || int64(r.lk.Token()) <= front || r.lk.Check() != nil || !owns(srv, r.lk) {
			t.Errorf("lease %x (was %x), token %v (was %d), Check %v, entries %v", r.lk.Lease(), old, r.lk.Token(), front, r.lk.Check(), standing(srv, "x"))
		}
	})
}

// The same waiter, when somebody deletes its entry during the suspension: what
// it had seen before is not what stands when it is granted.
func TestWaiterWhoseEntryIsDeletedWhileSuspendedAtTheFrontQueuesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		b := start(t, srv)
		b.link.Plan(unrenewed)
		time.Sleep(8 * time.Second)
		waiter := lockLater(deadline(t), locker.NewMutex(b.sess, "x"))
		queued(t, srv, "x", 1)
		deleted := standing(srv, "x")[0]
		srv.Delete(string(deleted.Key))
		b.heal()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if int64(r.lk.Token()) <= deleted.CreateRevision || !owns(srv, r.lk) {
			t.Errorf("token %v after the deletion of %d, entries %v", r.lk.Token(), deleted.CreateRevision, standing(srv, "x"))
		}
	})
}
