package locker_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
)

// Scenario 15. A process is stopped for longer than its TTL, another acquires,
// the process goes on: its first Check says lost, although no timer of its own
// has had a chance to; what it writes is refused by etcd, too.
func TestHolderStoppedPastItsTTLIsLostAtTheFirstCheck(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		granted := time.Now() // a's Grant is sent
		a, b := start(t, srv), start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.sess, "x"))
		waiter := lockLater(t.Context(), locker.NewMutex(b.sess, "x"))
		time.Sleep(time.Until(granted.Add(12 * time.Second))) // renewed twice
		a.stop()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		// etcd counts from when the renewal arrived; then the event, the read that judges, and the
		// lock delay.
		if at := time.Since(granted); at != 2*renewal+15*time.Second+lockDelay+4*oneWay {
			t.Errorf("the waiter holds after %v, want the TTL after the second renewal, and the lock delay", at)
		}
		time.Sleep(15 * time.Second)
		a.resume()
		var lost *holdfast.LostError
		if err := lk.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired || lost.Since < 30*time.Second {
			t.Errorf("first Check: %v", err)
		}
		if r.lk.Token() <= lk.Token() || !owns(srv, r.lk) {
			t.Errorf("token %v after %v, entries %v", r.lk.Token(), lk.Token(), standing(srv, "x"))
		}
		if _, err := fencing.NewFencedWriter(lk).Put(t.Context(), "data", "late"); !errors.As(err, &lost) {
			t.Errorf("guarded write: %v", err)
		}
		// The same from between a Check and a write, where only etcd can refuse.
		resp, err := a.link.Client().Txn(t.Context()).If(lk.IsOwner()).Commit()
		if err != nil || resp.Succeeded {
			t.Errorf("IsOwner in a Txn: %v, %v", resp, err)
		}
		time.Sleep(time.Second)
		if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) || a.sess.Check() != nil {
			t.Errorf("afterwards: lock %v, session %v", err, a.sess.Check())
		}
		if got := a.events.states(); !slices.Equal(got, []holdfast.State{holdfast.Lost, holdfast.Connected}) &&
			!slices.Equal(got, []holdfast.State{holdfast.Suspended, holdfast.Lost, holdfast.Connected}) {
			t.Errorf("events %v", got)
		}
	})
}

// Scenario 16. A process is stopped for less than its TTL: it still holds, by
// the same token. How long it is trusted is exact: a stop that ends just in
// time for a renewal to be confirmed loses nothing.
func TestHolderStoppedForLessThanItsTTLStillHolds(t *testing.T) {
	// Times since the Grant was sent. The last renewal before the stop is the
	// second. A renewal is one message and one read, 20 ms in all.
	const (
		confirm   = 4 * oneWay
		suspended = 2*renewal + trust/2
		lost      = 2*renewal + trust
	)
	for name, c := range map[string]struct {
		until  time.Duration
		events []holdfast.State
	}{
		"between two renewals":                  {14 * time.Second, nil},
		"past a renewal":                        {suspended - confirm - time.Millisecond, nil},
		"just too long to stay connected":       {suspended - confirm + time.Millisecond, []holdfast.State{holdfast.Suspended, holdfast.Connected}},
		"past the suspension":                   {20 * time.Second, []holdfast.State{holdfast.Suspended, holdfast.Connected}},
		"until just in time for a renewal":      {lost - confirm - time.Millisecond, []holdfast.State{holdfast.Suspended, holdfast.Connected}},
		"until just too late for one, and lost": {lost - confirm + time.Millisecond, []holdfast.State{holdfast.Suspended, holdfast.Lost, holdfast.Connected}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				begin := time.Now()
				a := start(t, srv)
				lk := mustLock(t, locker.NewMutex(a.sess, "x"))
				at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
				at(12 * time.Second)
				a.stop()
				at(c.until)
				a.resume()
				synctest.Wait()
				// Nothing is confirmed yet: what is said now is by the clock.
				overdue := c.until >= suspended
				if err := lk.Check(); overdue != errors.Is(err, holdfast.ErrSuspended) || !overdue && err != nil {
					t.Errorf("first Check: %v", err)
				}
				time.Sleep(2 * confirm)
				if gone := slices.Contains(c.events, holdfast.Lost); gone != errors.Is(lk.Check(), holdfast.ErrLost) || !gone && (lk.Check() != nil || !owns(srv, lk)) {
					t.Errorf("Check %v, token %v, entries %v", lk.Check(), lk.Token(), standing(srv, "x"))
				}
				if got := a.events.states(); !slices.Equal(got, c.events) {
					t.Errorf("events %v, want %v", got, c.events)
				}
			})
		})
	}
}

// Scenario 25. The machine sleeps for longer than the TTL: Go's timers have
// stood still, the injected clock has not, and neither has etcd.
func TestHolderOnAMachineThatSleptPastTheTTLIsLostAtTheFirstCheck(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		a := start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.sess, "x"))
		a.suspend(14 * time.Second) // no time passes in the bubble, no timer fires
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
