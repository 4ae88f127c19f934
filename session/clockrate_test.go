package session_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// Clocks run at different rates. A session whose clock is slow believes for
// longer than it says: for (TTL - margin)/rate of etcd's time. So it is told in
// time down to a rate of 1 - margin/TTL, which is where the guarantee ends, and
// a clock that is fast only gives more time.
func TestDriftMarginIsTheRateOfAClockThatIsToldInTime(t *testing.T) {
	const ttl = 15 * time.Second // what the fake grants and renews
	for _, margin := range []time.Duration{200 * time.Millisecond, 1500 * time.Millisecond, 3750 * time.Millisecond} {
		bound := 1 - float64(margin)/float64(ttl)
		for _, rate := range []float64{bound - 0.02, bound - 0.001, bound + 0.001, 1, 1.1} {
			// As etcd sees it: how long before the expiry the session knows. (Of
			// a clock that is faster than the timers, these tell a little later.)
			want := ttl - time.Duration(float64(ttl-margin)/rate)
			t.Run(fmt.Sprintf("margin %v, rate %.4f", margin, rate), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					f := newFakeEtcd()
					mono := session.MonotonicClock()
					clock := func() time.Duration { return time.Duration(float64(mono()) * rate) }
					sess := f.open(t, session.Options{StayLost: true, Clock: clock, DriftMargin: margin})
					l, err := lease.Open(sess.Ref()).Await(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute) // well connected: the rate alone loses nothing
					if err := sess.Check(); err != nil {
						t.Fatalf("after a minute: %v", err)
					}
					f.set(func(f *fakeEtcd) { f.cut = true })
					<-l.Context().Done()
					early := time.Until(f.expires(l.ID()))
					if diff := (early - want).Abs(); rate <= 1 && diff > time.Millisecond || rate > 1 && early < margin {
						t.Errorf("told %v before the expiry, want %v", early, want)
					}
					if inTime := early > 0; inTime != (rate > bound) {
						t.Errorf("told in time: %v; the margin covers rates above %.4f", inTime, bound)
					}
				})
			})
		}
	}
}

// Scenario 24, as far as a test can jump a clock: time.Now, wall and monotonic,
// goes on by an hour while the session's own clock stands still. Whatever
// decided by time.Now would find the lease long gone.
func TestNothingButTheSessionsClockDecides(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{Clock: func() time.Duration { return time.Second }, OnStateChange: events.tell})
		l, err := lease.Open(sess.Ref()).Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id, remaining := sess.Lease(), sess.Remaining()
		for range 60 {
			time.Sleep(time.Minute)
			if err := errors.Join(sess.Check(), l.Check(), l.AwaitConnected(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		if sess.State() != holdfast.Connected || sess.Lease() != id || sess.Remaining() != remaining || l.ConnectedContext().Err() != nil || len(events) != 0 {
			t.Errorf("state %v, lease %x (was %x), remaining %v (was %v), %d events", sess.State(), sess.Lease(), id, sess.Remaining(), remaining, len(events))
		}
	})
}

// The default clock does not read the wall clock: it starts at zero and goes
// with the monotonic one. (That no code takes the wall part of a time.Now is
// asserted by internal/layering.)
func TestSystemClockStartsAtZeroAndNeverRunsBackwards(t *testing.T) {
	clock, mono := session.SystemClock(), session.MonotonicClock()
	last := time.Duration(0)
	for range 1000 {
		now := clock()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
	if now := mono(); last > now+time.Minute {
		t.Errorf("the system clock is at %v when %v have passed", last, now)
	}
}
