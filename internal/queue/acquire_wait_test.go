package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// Scenarios 17 and 18. A waiter's lease ends at any moment around the release of the entry
// ahead. The waiter holds only by an entry that a read has seen afterwards, on a lease that
// is not known to be lost.
func TestWaiterWhoseLeaseEndsAsTheEntryAheadIsRemovedHoldsByAnExistingEntry(t *testing.T) {
	sameLease, nextLease := 0, 0
	atEveryMoment(t, -8*kit.OneWay, 12*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		old := b.Sess.Lease()
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		time.Sleep(time.Second)
		begin := time.Now()
		go func() { // both end before the bubble does
			time.Sleep(20 * kit.OneWay)
			mustRelease(t, h)
		}()
		time.Sleep(time.Until(begin.Add(20*kit.OneWay + offset)))
		srv.Revoke(old)
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		left, ended := int64(0), int64(0) // revisions at which the entry ahead and the granted one were deleted
		for _, c := range srv.History(entriesX) {
			switch {
			case c.Deleted && string(c.Kv.Key) == h.Key():
				left = c.Revision
			case c.Deleted && string(c.Kv.Key) == r.h.Key():
				ended = c.Revision
			}
		}
		if left == 0 || ended != 0 && ended < left {
			t.Errorf("the entry ahead was deleted at revision %d, the granted one at %d", left, ended)
		}
		if r.h.Lease() != old {
			nextLease++
			if r.h.Check() != nil || !isFirst(srv, r.h) {
				t.Errorf("on the next lease: Check %v, entries %v", r.h.Check(), kit.Standing(srv, "x"))
			}
			return
		}
		sameLease++ // revoked behind the read: it is told within 2 s
		select {
		case <-r.h.Done():
		case <-time.After(2 * time.Second):
			t.Errorf("not told within 2 s that its entry is gone")
		}
	})
	if sameLease == 0 || nextLease == 0 {
		t.Errorf("granted %d times before the lease ended, %d times on the next: the moments are not around the grant",
			sameLease, nextLease)
	}
}

// unrenewed loses renewals and nothing else.
func unrenewed(c etcdfake.Call) etcdfake.Fate {
	return etcdfake.Fate{LoseRequest: c.Method == "LeaseKeepAlive", Silent: true}
}

// A waiter whose lease is not confirmed reaches the front like any other. It must not hold
// what it may be about to lose.
func TestWaiterAtTheFrontIsNotGrantedWhileItsLeaseIsSuspended(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		b.Link.Plan(unrenewed)
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
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
			t.Fatalf("granted while suspended: %v, Check %v", r.err, r.h.Check())
		default:
		}
		lease := b.Sess.Lease()
		b.Heal()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.h.Check() != nil || r.h.Lease() != lease || !isFirst(srv, r.h) {
			t.Errorf("once renewed: Check %v, lease %x (was %x), entries %v",
				r.h.Check(), r.h.Lease(), lease, kit.Standing(srv, "x"))
		}
	})
}

// The lease of that waiter is lost. Although its entry is at the front, it does not hold by
// that lease, but queues again.
func TestWaiterAtTheFrontWhoseSuspensionEndsInALossQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		b.Link.Plan(unrenewed)
		old := b.Sess.Lease()
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		time.Sleep(8 * time.Second)
		if err := h.Release(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		front := kit.Standing(srv, "x")[0].CreateRevision
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.h.Lease() == old || int64(r.h.Token()) <= front || r.h.Check() != nil || !isFirst(srv, r.h) {
			t.Errorf("lease %x (was %x), token %v (was %d), Check %v, entries %v",
				r.h.Lease(), old, r.h.Token(), front, r.h.Check(), kit.Standing(srv, "x"))
		}
	})
}

// The entry of that waiter is deleted during the suspension, so what an earlier read has
// seen is no longer true.
func TestWaiterWhoseEntryIsDeletedWhileSuspendedAtTheFrontQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		b := start(t, srv)
		b.Link.Plan(unrenewed)
		time.Sleep(8 * time.Second)
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		kit.Queued(t, srv, entriesX, 1)
		deleted := kit.Standing(srv, "x")[0]
		srv.Delete(string(deleted.Key))
		b.Heal()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if int64(r.h.Token()) <= deleted.CreateRevision || !isFirst(srv, r.h) {
			t.Errorf("token %v after the deletion of %d, entries %v",
				r.h.Token(), deleted.CreateRevision, kit.Standing(srv, "x"))
		}
	})
}

// Scenario 17. A waiter is cut off until its lease is gone. Whatever the holder does
// meanwhile, the waiter never holds by that lease.
func TestWaiterCutOffPastItsTTLIsNeverGrantedOnTheDeadLease(t *testing.T) {
	for name, leaves := range map[string]time.Duration{
		"the holder releases at once":                       2 * time.Second,
		"the holder releases while the waiter is suspended": 10 * time.Second,
		"the holder releases when the waiter is lost":       14 * time.Second,
		"the holder releases when etcd has ended the lease": 20 * time.Second,
		"the holder releases after the waiter is back":      40 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := start(t, srv), start(t, srv)
				h := mustAcquire(t, a.queue("x"))
				old := b.Sess.Lease()
				waiter := acquireLater(t.Context(), b.queue("x"))
				kit.Queued(t, srv, entriesX, 2)
				begin := time.Now()
				at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
				b.Link.BlackHole()
				left := make(chan struct{})
				go func() { // received below
					defer close(left)
					at(leaves)
					mustRelease(t, h)
				}()
				at(30 * time.Second)
				select {
				case r := <-waiter:
					t.Fatalf("returned while cut off: %+v", r)
				default:
				}
				b.Heal()
				if leaves > 30*time.Second { // it has queued again without waiting for the holder
					kit.Queued(t, srv, entriesX, 2)
				}
				r := <-waiter
				<-left
				if r.err != nil {
					t.Fatal(r.err)
				}
				if r.h.Lease() == old || r.h.Check() != nil || !isFirst(srv, r.h) {
					t.Errorf("lease %x (was %x), Check %v, entries %v", r.h.Lease(), old, r.h.Check(), kit.Standing(srv, "x"))
				}
			})
		})
	}
}

// The context of a server's requests may live as long as the server.
func TestCallsLeaveNothingThatListensToTheCallersContext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		q := p.queue("x")
		tk := q.newTicket(Request{})
		turns := []turn{{q.shared.join(tk, false), tk}}
		e := newEntries(turns, p.Host.Lease(), false)
		if err := e.put(t.Context(), condition{}); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func(ctx context.Context) error{
			"a wait": func(ctx context.Context) error {
				time.AfterFunc(time.Second, ahead.Release)
				return e.awaitFront(ctx)
			},
			"Limit": func(ctx context.Context) error { _, err := p.permits(1, 1).Limit(ctx); return err },
		} {
			ctx := &kit.Listened{Context: t.Context()}
			if err := call(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ctx.NothingListens(t, name)
		}
		mustRelease(t, newHolds(turns, e.set)[0])
	})
}
