package session_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/session"
)

// A session whose clock is slow trusts its lease for (TTL - margin)/rate of etcd's time. So a loss is reported in
// time down to a rate of 1 - margin/TTL, where the guarantee ends. A fast clock only leaves more time.
func TestDriftMarginCoversSlowClocksUpToItsRate(t *testing.T) {
	for _, margin := range []time.Duration{200 * time.Millisecond, 1500 * time.Millisecond, 3750 * time.Millisecond} {
		const ttl = session.DefaultTTL
		bound := 1 - float64(margin)/float64(ttl)
		for _, rate := range []float64{bound - 0.02, bound - 0.001, bound + 0.001, 1, 1.1} {
			// The time from the report to the expiry, by etcd's clock. (With a clock that is faster than the timers, a
			// timer reports a little later.)
			want := ttl - time.Duration(float64(ttl-margin)/rate)
			t.Run(fmt.Sprintf("margin %v, rate %.4f", margin, rate), func(t *testing.T) {
				start(t, func(t *testing.T, c *cluster) {
					mono := session.MonotonicClock()
					clock := func() time.Duration { return time.Duration(float64(mono()) * rate) }
					sess := c.open(t, session.Options{StayLost: true, Clock: clock, DriftMargin: margin})
					l := await(t, sess)
					time.Sleep(time.Minute) // connected: the rate alone loses nothing
					if err := sess.Check(); err != nil {
						t.Fatalf("after a minute: %v", err)
					}
					c.link.BlackHole()
					expires := c.Expires(l.ID())
					<-l.Context().Done()
					early := time.Until(expires)
					if diff := (early - want).Abs(); rate <= 1 && diff > time.Millisecond || rate > 1 && early < margin {
						t.Errorf("reported %v before the expiry, want %v", early, want)
					}
					if inTime := early > 0; inTime != (rate > bound) {
						t.Errorf("reported in time: %v; the margin covers rates above %.4f", inTime, bound)
					}
				})
			})
		}
	}
}

func TestAClockThatRunsSlowIsCoveredByTheMargin(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		mono := session.MonotonicClock()
		slow := func() time.Duration { return mono() * 92 / 100 }
		sess := c.open(t, session.Options{StayLost: true, Clock: slow})
		time.Sleep(31 * time.Second)
		c.link.BlackHole()
		expires := c.Expires(sess.Lease())
		for sess.State() != holdfast.Lost {
			time.Sleep(time.Millisecond)
		}
		if lost := time.Now(); !lost.Before(expires) {
			t.Errorf("lost %v after the expiry", lost.Sub(expires))
		}
	})
}

// time.Now, wall clock and monotonic, advances by an hour while the session's own clock stands still. Code that
// decided by time.Now would find the lease lost.
func TestNothingButTheSessionsClockDecides(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{Clock: func() time.Duration { return time.Second }, OnStateChange: events.record})
		l := await(t, sess)
		id, remaining := sess.Lease(), sess.Remaining()
		for range 60 {
			c.Skip(-time.Minute) // no renewal is due by the session's clock, so etcd would expire the lease
			time.Sleep(time.Minute)
			if err := errors.Join(sess.Check(), l.Check(), l.AwaitConnected(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		if sess.State() != holdfast.Connected || sess.Lease() != id || sess.Remaining() != remaining ||
			l.ConnectedContext().Err() != nil || len(events) != 0 {
			t.Errorf("state %v, lease %x (was %x), remaining %v (was %v), %d events",
				sess.State(), sess.Lease(), id, sess.Remaining(), remaining, len(events))
		}
	})
}

// The default clock does not read the wall clock: it starts at zero and advances with the monotonic one.
// (tests/layering tests that no code uses the wall clock of a time.Now.)
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
		t.Errorf("the system clock is at %v after %v", last, now)
	}
}
