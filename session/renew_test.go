package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

func TestAnHourOfRenewalsIsOneMessageAndOneReadEach(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		id := sess.Lease()
		time.Sleep(time.Hour + time.Second)
		if err := sess.Check(); err != nil || sess.Lease() != id {
			t.Fatalf("after an hour: %v, lease %x (was %x)", err, sess.Lease(), id)
		}
		// A renewal every 5.06 s, three eighths of the trusted 13.5 s, each with a read; and a read after the watch was
		// created. The lease of the claims is renewed every 90 to 100 s.
		for method, want := range map[string]int{"LeaseGrant": 2, "LeaseKeepAlive": 711 + 36, "Range": 712, "Put": 1} {
			if n := c.count(method); n < want || n > want && method != "LeaseKeepAlive" || n > want+4 {
				t.Errorf("%s sent %d times in an hour, want %d", method, n, want)
			}
		}
		if len(events) != 0 {
			t.Errorf("%d events without a change of state", len(events))
		}
	})
}

// A deposed leader that was paused and resumed acknowledges renewals that the cluster has never seen.
func TestRenewalAcknowledgedAtAnotherTermDoesNotCount(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{StayLost: true, OnStateChange: events.record})
		time.Sleep(11 * time.Second)
		expires, renewals := c.Expires(sess.Lease()), c.count("LeaseKeepAlive")
		c.ChangeLeader(time.Hour)
		events.next(t, holdfast.Suspended)
		lost := events.next(t, holdfast.Lost)
		if now := time.Now(); !now.Before(expires) {
			t.Errorf("reported %v after the last renewal that reached the cluster had expired", now.Sub(expires))
		}
		if n := c.count("LeaseKeepAlive") - renewals; n < 2 {
			t.Errorf("%d renewals: one that does not count must be repeated", n)
		}
		if lost.Err == nil || lost.Lease != sess.Lease() {
			t.Errorf("event %+v", lost)
		}
	})
}

func TestShortOutageSuspendsAndReconnectsTheSameLease(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		sess := c.open(t, session.Options{OnStateChange: events.record})
		id, held := sess.Lease(), await(t, sess)
		c.hang("LeaseKeepAlive")
		began := time.Now()
		connected := held.ConnectedContext()
		events.next(t, holdfast.Suspended)
		if d := time.Since(began); d != 6750*time.Millisecond {
			t.Errorf("suspended after %v, want half of the trusted 13.5 s", d)
		}
		if err := sess.Check(); !errors.Is(err, holdfast.ErrSuspended) || sess.State() != holdfast.Suspended {
			t.Errorf("Check %v, state %v", err, sess.State())
		}
		<-connected.Done()
		if !errors.Is(context.Cause(connected), holdfast.ErrSuspended) {
			t.Errorf("cause %v", context.Cause(connected))
		}
		c.heal()
		if err := held.AwaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		ev := events.next(t, holdfast.Connected)
		if !ev.Reconnected() || ev.Lease != id || sess.Lease() != id {
			t.Errorf("event %+v, lease %x", ev, sess.Lease())
		}
		if held.ConnectedContext().Err() != nil {
			t.Error("ConnectedContext is canceled although reconnected")
		}
	})
}

// Invariant 2: a renewal that is confirmed after the deadline is too late, even if no timer and no caller has
// noticed the deadline before.
func TestRenewalConfirmedTooLateDoesNotRevive(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		clock, jump := jumping()
		sess := c.open(t, session.Options{StayLost: true, Clock: clock})
		time.Sleep(6 * time.Second) // one renewal at 5 s: trusted until 18.5 s
		c.delay(0, 300*time.Millisecond)
		time.Sleep(4200 * time.Millisecond) // the renewal sent at 10.1 s is in flight
		synctest.Wait()
		if n := c.count("LeaseKeepAlive"); n != 2 {
			t.Fatalf("%d renewals sent", n)
		}
		jump(10 * time.Second)             // 20.2 s
		time.Sleep(600 * time.Millisecond) // both replies have arrived; they would mean 23.6 s
		if err := sess.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Fatalf("Check: %v", err)
		}
	})
}

// The pauses of a program's locks may be longer than a lease lasts. A renewal that is not answered must still not
// cost the lease.
func TestPausesBetweenRenewalsFitIntoTheTTL(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{"unanswered": unanswered, "refused": noLeader} {
		start(t, func(t *testing.T, c *cluster) {
			sess := c.open(t, session.Options{
				Retry: backoff.Policy{Initial: time.Minute, Max: time.Minute, Rand: func() float64 { return 0.999 }},
			})
			id := sess.Lease()
			c.fail(fate, "LeaseKeepAlive")
			time.Sleep(6 * time.Second) // it was sent at 5 s, and without a reply is given up at 9 s
			c.heal()
			time.Sleep(time.Minute)
			if err := sess.Check(); err != nil || sess.Lease() != id {
				t.Errorf("%s: Check %v, lease %x, was %x", name, err, sess.Lease(), id)
			}
		})
	}
}

// A renewal that hangs leaves an eighth of the trusted time to send others, whatever the TTL and the margin are.
func TestOneRenewalThatIsNotAnsweredDoesNotSuspend(t *testing.T) {
	for _, o := range []session.Options{
		{TTL: 2 * time.Second}, {TTL: 5 * time.Second}, {}, {DriftMargin: 3750 * time.Millisecond}, {TTL: 600 * time.Second},
	} {
		for _, method := range []string{"LeaseKeepAlive", "Range"} {
			start(t, func(t *testing.T, c *cluster) {
				events := newRecorder()
				o := o
				o.OnStateChange = events.record
				sess := c.open(t, o)
				for range 20 {
					c.link.LoseReply(method, 1, codes.DeadlineExceeded)
					time.Sleep(sess.Remaining())
				}
				if len(events) != 0 {
					t.Errorf("TTL %v, margin %v, first %s of each renewal not answered: %v",
						o.TTL, o.DriftMargin, method, (<-events).State)
				}
			})
		}
	}
}

func TestValidOptionsDoNotSuspendAHealthySession(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 15 * time.Second, 300 * time.Second, 600 * time.Second} {
		for _, margin := range []time.Duration{0, 200 * time.Millisecond, max(ttl/10, 200*time.Millisecond), ttl / 4} {
			start(t, func(t *testing.T, c *cluster) {
				events := newRecorder()
				c.open(t, session.Options{TTL: ttl, DriftMargin: margin, OnStateChange: events.record})
				time.Sleep(10 * ttl)
				if len(events) != 0 {
					t.Errorf("TTL %v, margin %v: %v after %d renewals", ttl, margin, (<-events).State, c.count("LeaseKeepAlive"))
				}
			})
		}
	}
}

// Whatever etcd answers, neither the session nor etcd's client sends a request again without a pause.
func TestRenewalsThatAreRefusedAtOnceArePaced(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Unavailable, codes.Internal, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted,
		codes.PermissionDenied,
	} {
		for _, method := range []string{"LeaseKeepAlive", "Range"} {
			t.Run(code.String()+" "+method, func(t *testing.T) {
				start(t, func(t *testing.T, c *cluster) {
					events := newRecorder()
					sess := c.open(t, session.Options{OnStateChange: events.record})
					c.refuse(code, method)
					before := c.count(method)
					events.next(t, holdfast.Suspended)
					c.heal()
					events.next(t, holdfast.Connected)
					if err := sess.Check(); err != nil {
						t.Error(err)
					}
					// etcd's client repeats some of them, here every 25 ms.
					if n := c.count(method) - before; n > 200 {
						t.Errorf("sent %d times in 1.7 s", n)
					}
				})
			})
		}
	}
}

// If every reply takes long, the pauses get longer: requests in flight are not repeated again and again.
func TestSlowRequestsAreNotRepeatedAgainAndAgain(t *testing.T) {
	for _, tc := range []struct {
		ttl, roundTrip time.Duration
		most           float64 // renewals a second
	}{
		{15 * time.Second, time.Second, 0.2},
		{15 * time.Second, 3 * time.Second, 0.35}, // two ninths of the trusted time
		{5 * time.Second, time.Second, 1},         // the same
		{5 * time.Second, 2 * time.Second, 1},     // longer than the longest pause of 1.5 s, so each is sent twice
	} {
		start(t, func(t *testing.T, c *cluster) {
			sess := c.open(t, session.Options{TTL: tc.ttl, StayLost: true})
			c.delay(tc.roundTrip/2, tc.roundTrip/2)
			time.Sleep(time.Minute)
			renewals, reads := c.count("LeaseKeepAlive"), c.count("Range")
			time.Sleep(4 * time.Minute)
			renewals, reads = c.count("LeaseKeepAlive")-renewals, c.count("Range")-reads
			const claims = 3 // renewals of the lease of the claims in four minutes
			if err := sess.Check(); errors.Is(err, holdfast.ErrLost) || max(renewals-claims, reads) > int(240*tc.most) {
				t.Errorf("TTL %v, round trip %v: %d renewals and %d reads in four minutes; %v",
					tc.ttl, tc.roundTrip, renewals, reads, err)
			} else {
				t.Logf("TTL %v, round trip %v: %d renewals and %d reads in four minutes", tc.ttl, tc.roundTrip, renewals, reads)
			}
		})
	}
}

// A session that has a second of trusted time left when its requests pass again keeps its lease, however long they were
// lost.
func TestSessionWithASecondLeftWhenRequestsPassAgainKeepsItsLease(t *testing.T) {
	const ttl = 5 * time.Second
	lost := 0
	for offset := time.Duration(0); offset < 1700*time.Millisecond; offset += 20 * time.Millisecond {
		start(t, func(t *testing.T, c *cluster) {
			sess := c.open(t, session.Options{TTL: ttl, StayLost: true})
			time.Sleep(10*time.Second + offset)
			c.hang()
			time.Sleep(2 * time.Second)
			left := sess.Remaining()
			c.heal()
			time.Sleep(ttl)
			switch err := sess.Check(); {
			case err != nil && left >= time.Second:
				t.Errorf("%v was left: %v", left, err)
			case err != nil:
				lost++
			}
		})
	}
	t.Logf("%d of 85 are lost", lost)
}
