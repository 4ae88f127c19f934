package locker_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// Scenario 15. A process is stopped for longer than its TTL, another acquires,
// the process goes on: its first Check says lost, although no timer of its own
// has had a chance to; what it writes is refused by etcd, too.
func TestHolderStoppedPastItsTTLIsLostAtTheFirstCheck(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		granted := time.Now() // a's Grant is sent
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
		waiter := lockLater(t.Context(), locker.NewMutex(b.Sess, "x"))
		time.Sleep(time.Until(granted.Add(12 * time.Second))) // renewed twice
		a.Stop()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		// etcd counts from when the renewal arrived; then the event, the read that judges, the lock
		// delay, the read at its end, and the deletion of the claim.
		if at := time.Since(granted); at != 2*a.Renewal+kit.TTL+kit.LockDelay+8*kit.OneWay {
			t.Errorf("the waiter holds after %v, want the TTL after the second renewal, and the lock delay", at)
		}
		time.Sleep(15 * time.Second)
		a.Resume()
		var lost *holdfast.LostError
		if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired || lost.Since < 30*time.Second {
			t.Errorf("first Check: %v", err)
		}
		if r.lk.Token() <= lk.Token() || !owns(srv, r.lk) {
			t.Errorf("token %v after %v, entries %v", r.lk.Token(), lk.Token(), kit.Standing(srv, "x"))
		}
		if _, err := etcdfence.NewWriter(lk).Put(t.Context(), "data", "late"); !errors.As(err, &lost) {
			t.Errorf("guarded write: %v", err)
		}
		// The same from between a Check and a write, where only etcd can refuse.
		resp, err := a.Link.Client().Txn(t.Context()).If(lk.Holding()...).Commit()
		if err != nil || resp.Succeeded {
			t.Errorf("Holding in a Txn: %v, %v", resp, err)
		}
		time.Sleep(time.Second)
		if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) || a.Sess.Check() != nil {
			t.Errorf("afterwards: lock %v, session %v", err, a.Sess.Check())
		}
		if got := a.States(); !slices.Equal(got, []holdfast.State{holdfast.Lost, holdfast.Connected}) &&
			!slices.Equal(got, []holdfast.State{holdfast.Suspended, holdfast.Lost, holdfast.Connected}) {
			t.Errorf("events %v", got)
		}
	})
}

// Scenario 16. A process is stopped for less than its TTL: it still holds, by
// the same token. How long it is trusted is exact: a stop that ends just in
// time for a renewal to be confirmed loses nothing.
func TestHolderStoppedForLessThanItsTTLStillHolds(t *testing.T) {
	// A renewal is one message and one read, sent at the same time.
	const confirm = 2 * kit.OneWay
	again := []holdfast.State{holdfast.Suspended, holdfast.Connected}
	lost := []holdfast.State{holdfast.Suspended, holdfast.Lost, holdfast.Connected}
	for name, c := range map[string]struct {
		until  time.Duration // since the last renewal before the stop
		events []holdfast.State
	}{
		"between two renewals":                  {4 * time.Second, nil},
		"past a renewal":                        {kit.Trust/2 - confirm - time.Millisecond, nil},
		"just too long to stay connected":       {kit.Trust/2 - confirm + time.Millisecond, again},
		"past the suspension":                   {10 * time.Second, again},
		"until just in time for a renewal":      {kit.Trust - confirm - time.Millisecond, again},
		"until just too late for one, and lost": {kit.Trust - confirm + time.Millisecond, lost},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				begin := time.Now()
				a := kit.Start(t, srv)
				lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
				at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
				at(12 * time.Second) // renewed twice
				a.Stop()
				at(2*a.Renewal + c.until)
				a.Resume()
				synctest.Wait()
				// Nothing is confirmed yet: what is said now is by the clock.
				overdue := c.until >= kit.Trust/2
				if err := lk.Check(); overdue != errors.Is(err, holdfast.ErrSuspended) || !overdue && err != nil {
					t.Errorf("first Check: %v", err)
				}
				time.Sleep(2*confirm + 4*kit.OneWay) // for a renewal, or for a new lease and its session key
				gone := slices.Contains(c.events, holdfast.Lost)
				if gone != errors.Is(lk.Check(), holdfast.ErrLost) || !gone && (lk.Check() != nil || !owns(srv, lk)) {
					t.Errorf("Check %v, token %v, entries %v", lk.Check(), lk.Token(), kit.Standing(srv, "x"))
				}
				if got := a.States(); !slices.Equal(got, c.events) {
					t.Errorf("events %v, want %v", got, c.events)
				}
			})
		})
	}
}

// Scenario 25. The machine sleeps for longer than the TTL: Go's timers have
// stood still, the injected clock has not, and neither has etcd.
func TestHolderOnAMachineThatSleptPastTheTTLIsLostAtTheFirstCheck(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
		a.Suspend(14 * time.Second) // no time passes in the bubble, no timer fires
		var lost *holdfast.LostError
		if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired || lost.Name != "x" {
			t.Errorf("first Check: %v", err)
		}
		select {
		case <-lk.Done():
		default:
			t.Error("Done is open though Check has said lost")
		}
	})
}
