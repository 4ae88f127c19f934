package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// late is how long the copies of these tests travel.
const late = 10 * time.Second

// The front gives up while its admission travels, and the session uses the key of its turn again.
func TestLateAdmissionMarksNoLaterTurnAtItsKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		other, p := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, other.Permits(1, 1))
		first, giveUp := context.WithCancel(ctx)
		front := holdtest.AcquireLater(first, p.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		key := youngestTurn(srv)
		p.PlanOne("mark", etcdfake.Fate{Request: late})
		holdtest.MustRelease(t, h)
		time.Sleep(10 * kit.OneWay)
		giveUp()
		if r := <-front; !errors.Is(r.Err, context.Canceled) {
			t.Fatal(r.Err)
		}
		h = holdtest.MustAcquire(t, other.Permits(1, 1))
		var waiters []<-chan holdtest.Result // a permit uses one key and its turn another
		for n := range 2 {
			waiters = append(waiters, holdtest.AcquireLater(ctx, p.Permits(1, 1)))
			kit.Queued(t, srv, permitsX, n+2)
		}
		if len(srv.Keys(key)) == 0 {
			t.Fatal("the key was not used again: this tests nothing")
		}
		time.Sleep(2 * late)
		for _, done := range waiters {
			stillWaits(t, done)
		}
		holdtest.MustRelease(t, h)
		for _, done := range waiters {
			holdtest.MustRelease(t, heldNow(t, done))
		}
	})
}

func TestLateReleaseOfAPermitSparesTheNextAtItsKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		p.PlanOne("remove", etcdfake.Fate{Request: late})
		holdtest.MustRelease(t, h)
		next := holdtest.MustAcquire(t, p.Permits(1, 1))
		if next.Key() != h.Key() {
			t.Fatal("the key was not used again: this tests nothing")
		}
		time.Sleep(2 * late)
		if err := next.Check(); err != nil || len(srv.Keys(next.Key())) != 1 {
			t.Errorf("the next permit: %v; %v", err, kit.AllStanding(srv))
		}
		holdtest.MustRelease(t, next)
		kit.NothingStands(t, srv)
	})
}

// An administrator removes a permit that waits for the delay of a dead claim, and does not hold yet. Then another
// waiter deletes that claim.
func TestPermitThatIsMovedInItsDelayDoesNotHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		holder := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, holder.Permits(1, 1))
		revokeUntold(srv, holder)
		p := holdtest.Start(t, srv)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 1)
		own := srv.Keys(permitsX)[0]
		lease, err := srv.Client(t).Grant(t.Context(), 30)
		if err != nil {
			t.Fatal(err)
		}
		move := clientv3.OpPut(string(own.Key), string(own.Value), clientv3.WithLease(lease.ID))
		if _, err := srv.Client(t).Txn(t.Context()).Then(move,
			clientv3.OpDelete(kit.ClaimOf(string(own.Key)))).Commit(); err != nil {
			t.Fatal(err)
		}
		srv.Delete(kit.ClaimOf(h.Key()))
		r := <-done
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if r.H.Created() == own.CreateRevision {
			t.Error("it holds by the permit that was moved")
		}
		holdtest.MustRelease(t, r.H)
		kit.NothingStands(t, srv)
	})
}
