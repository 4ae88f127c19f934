package queue_test

import (
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The lease of the claims is revoked by hand, and the session's is not. Entries keep their order without claims.
func TestEntriesKeepTheirOrderWithoutTheirClaims(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b, c := holdtest.Start(t, srv), holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, a.Queue("x"))
		between := kit.Join(t, srv, holdtest.EntriesX)
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		between.Release() // so the waiter has to find the holder's entry
		srv.Revoke(a.Host.Lease().Claims)
		srv.Revoke(b.Host.Lease().Claims)
		if claims := srv.Keys(kit.Claims("x")); len(claims) != 0 {
			t.Fatalf("claims stand: %v", claims)
		}
		newcomer := holdtest.AcquireLater(kit.Within(t, time.Minute), c.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		holdtest.StaysQueued(t, waiter, "the waiter")
		holdtest.StaysQueued(t, newcomer, "the newcomer")
		if _, err := holdtest.TryAcquire(kit.Within(t, time.Minute), c.Queue("x")); !errors.Is(err, queue.ErrOccupied) {
			t.Errorf("TryAcquire: %v", err)
		}
		if err := h.Check(); err != nil {
			t.Errorf("the holder: %v", err)
		}
		holdtest.MustRelease(t, h)
		r := holdtest.Granted(t, srv, waiter)
		holdtest.Delayed(t, r, srv, h.Key(), false)
		holdtest.StaysQueued(t, newcomer, "the newcomer")
		holdtest.MustRelease(t, r.H)
		next := holdtest.Granted(t, srv, newcomer)
		holdtest.Delayed(t, next, srv, r.H.Key(), false)
		holdtest.MustRelease(t, next.H)
		kit.NothingStands(t, srv)
	})
}

// The next put finds that the lease of the claims is gone. What is held is lost with it, and the put goes on under the
// next lease.
func TestPutFindsThatTheLeaseOfItsClaimIsGone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		held, gone := holdtest.MustAcquire(t, p.Queue("held")), p.Host.Lease().Claims
		srv.Revoke(gone)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		if err := held.Check(); !errors.Is(err, holdfast.ErrLost) || p.Sess.Lease() == held.Lease() {
			t.Errorf("what was held before: %v", err)
		}
		claims := srv.Keys(kit.Claims("x"))
		if len(claims) != 1 || claims[0].CreateRevision != h.Created() || clientv3.LeaseID(claims[0].Lease) == gone ||
			claims[0].Lease == int64(h.Lease()) {
			t.Errorf("claims: %v; the entry was created at %d", claims, h.Created())
		}
		holdtest.MustRelease(t, h)
		time.Sleep(2 * time.Second) // a drift margin
		kit.NothingStands(t, srv)
	})
}

// The claim of a set's entries stands beside each, at one revision, also if one Txn in another puts each.
func TestClaimStandsBesideEachEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		l := p.Host.Lease()
		for _, s := range []queue.Set{
			p.Set("x"), p.Set("x", "!y"), p.Queue("x").Downgradable(), {p.QueueAt("theirs/x")}, many(p, queue.MaxSet),
		} {
			holds := holdtest.MustAcquireSet(t, s, noRequest)
			for _, h := range holds {
				at := h.Queue().Layout()
				claims := srv.Keys(at.ClaimKey(h.Key()))
				if len(claims) != 1 || claims[0].CreateRevision != h.Created() || clientv3.LeaseID(claims[0].Lease) != l.Claims {
					t.Errorf("%s: claims %v; the entry was created at %d", h.Key(), claims, h.Created())
				}
			}
			holdtest.MustRelease(t, holds[0])
			kit.NothingStands(t, srv)
		}
	})
}
