package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Scenarios 17 and 18. A waiter's lease ends at any moment around the release of the entry
// ahead. The waiter holds only by an entry that a read has seen afterwards, on a lease that
// is not known to be lost.
func TestWaiterWhoseLeaseEndsAsTheEntryAheadIsRemovedHoldsByAnExistingEntry(t *testing.T) {
	sameLease, nextLease := 0, 0
	holdtest.AtEveryMoment(t, -8*kit.OneWay, 12*kit.OneWay,
		func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
			a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
			h := holdtest.MustAcquire(t, a.Queue("x"))
			old := b.Sess.Lease()
			waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
			kit.Queued(t, srv, holdtest.EntriesX, 2)
			time.Sleep(time.Second)
			begin := time.Now()
			go func() { // both end before the bubble does
				time.Sleep(20 * kit.OneWay)
				holdtest.MustRelease(t, h)
			}()
			time.Sleep(time.Until(begin.Add(20*kit.OneWay + offset)))
			srv.Revoke(old)
			r := <-waiter
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			left, ended := int64(0), int64(0) // revisions at which the entry ahead and the granted one were deleted
			for _, c := range srv.History(holdtest.EntriesX) {
				switch {
				case c.Deleted && string(c.Kv.Key) == h.Key():
					left = c.Revision
				case c.Deleted && string(c.Kv.Key) == r.H.Key():
					ended = c.Revision
				}
			}
			if left == 0 || ended != 0 && ended < left {
				t.Errorf("the entry ahead was deleted at revision %d, the granted one at %d", left, ended)
			}
			if r.H.Lease() != old {
				nextLease++
				if r.H.Check() != nil || !holdtest.IsFirst(srv, r.H) {
					t.Errorf("on the next lease: Check %v, entries %v", r.H.Check(), kit.Standing(srv, "x"))
				}
				return
			}
			sameLease++ // revoked behind the read: it is told within 2 s
			select {
			case <-r.H.Done():
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
// The lease of that waiter is lost. Although its entry is at the front, it does not hold by
// that lease, but queues again.
// The entry of that waiter is deleted during the suspension, so what an earlier read has
// seen is no longer true.
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
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, a.Queue("x"))
				old := b.Sess.Lease()
				waiter := holdtest.AcquireLater(t.Context(), b.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				begin := time.Now()
				at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
				b.Link.BlackHole()
				left := make(chan struct{})
				go func() { // received below
					defer close(left)
					at(leaves)
					holdtest.MustRelease(t, h)
				}()
				at(30 * time.Second)
				select {
				case r := <-waiter:
					t.Fatalf("returned while cut off: %+v", r)
				default:
				}
				b.Heal()
				if leaves > 30*time.Second { // it has queued again without waiting for the holder
					kit.Queued(t, srv, holdtest.EntriesX, 2)
				}
				r := <-waiter
				<-left
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if r.H.Lease() == old || r.H.Check() != nil || !holdtest.IsFirst(srv, r.H) {
					t.Errorf("lease %x (was %x), Check %v, entries %v", r.H.Lease(), old, r.H.Check(), kit.Standing(srv, "x"))
				}
			})
		})
	}
}
