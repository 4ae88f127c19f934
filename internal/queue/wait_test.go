package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestWaiterAtTheFrontIsNotGrantedWhileItsLeaseIsSuspended(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, a.Queue("x"))
		b.Link.Plan(unrenewed)
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		time.Sleep(8 * time.Second)
		if err := b.Sess.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatalf("the waiter's session: %v, want suspended", err)
		}
		if err := h.Release(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if kvs := kit.Standing(srv, "x"); len(kvs) != 1 || kvs[0].Lease != int64(b.Sess.Lease()) {
			t.Fatalf("entries %v, want the waiter's at the front", kvs)
		}
		select {
		case r := <-waiter:
			t.Fatalf("granted while suspended: %v, Check %v", r.Err, r.H.Check())
		default:
		}
		lease := b.Sess.Lease()
		b.Heal()
		r := <-waiter
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if r.H.Check() != nil || r.H.Lease() != lease || !holdtest.IsFirst(srv, r.H) {
			t.Errorf("once renewed: Check %v, lease %x (was %x), entries %v",
				r.H.Check(), r.H.Lease(), lease, kit.Standing(srv, "x"))
		}
	})
}

func TestWaiterAtTheFrontWhoseSuspensionEndsInALossQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, a.Queue("x"))
		b.Link.Plan(unrenewed)
		old := b.Sess.Lease()
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		time.Sleep(8 * time.Second)
		if err := h.Release(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		front := kit.Standing(srv, "x")[0].CreateRevision
		r := <-waiter
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if r.H.Lease() == old || int64(r.H.Token()) <= front || r.H.Check() != nil || !holdtest.IsFirst(srv, r.H) {
			t.Errorf("lease %x (was %x), token %v (was %d), Check %v, entries %v",
				r.H.Lease(), old, r.H.Token(), front, r.H.Check(), kit.Standing(srv, "x"))
		}
	})
}

func TestWaiterWhoseEntryIsDeletedWhileSuspendedAtTheFrontQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		b := holdtest.Start(t, srv)
		b.Link.Plan(unrenewed)
		time.Sleep(8 * time.Second)
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 1)
		deleted := kit.Standing(srv, "x")[0]
		srv.Delete(string(deleted.Key))
		b.Heal()
		r := <-waiter
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if int64(r.H.Token()) <= deleted.CreateRevision || !holdtest.IsFirst(srv, r.H) {
			t.Errorf("token %v after the deletion of %d, entries %v",
				r.H.Token(), deleted.CreateRevision, kit.Standing(srv, "x"))
		}
	})
}
