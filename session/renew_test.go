package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// renewal is when the first renewal is due with the default options: three
// eighths of the trusted 13.5 s after the grant.
const renewal = 13500 * time.Millisecond * 3 / 8

func TestAnHourOfRenewalsIsOneMessageAndOneReadEach(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		lease := sess.Lease()
		time.Sleep(time.Hour + time.Second)
		if err := sess.Check(); err != nil || sess.Lease() != lease {
			t.Fatalf("after an hour: %v, lease %x (was %x)", err, sess.Lease(), lease)
		}
		// One read more follows the creation of the watch.
		for rpc, want := range map[string]int{"LeaseKeepAlive": 711, "Range": 712, "Put": 1} {
			if n := f.count(rpc); n != want {
				t.Errorf("%s sent %d times in an hour, want %d: one in 5.06 s, three eighths of the trusted 13.5 s", rpc, n, want)
			}
		}
		if n := f.count("LeaseGrant"); n != 1 {
			t.Errorf("%d leases granted, want 1", n)
		}
		if len(events) != 0 {
			t.Errorf("%d events without a change of state", len(events))
		}
	})
}

// Invariant 1. Requests and answers travel for random times, and at a random
// phase everything goes silent: whatever was acknowledged by then, the session
// must know before the server lets go. A deadline taken from the receipt of an
// acknowledgement fails here, and so does one without the drift margin.
func TestLossIsToldBeforeTheLeaseExpires(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				some := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
				f := newFakeEtcd()
				sess := f.open(t, session.Options{StayLost: true})
				f.set(func(f *fakeEtcd) { f.requests, f.replies = some(time.Second), some(time.Second) })
				time.Sleep(20*time.Second + some(20*time.Second))
				f.set(func(f *fakeEtcd) { f.cut = true })
				l, err := lease.Open(sess.Ref()).Await(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				<-l.Context().Done()
				told, expires := time.Now(), f.expires(sess.Lease())
				if margin := expires.Sub(told); margin < 1500*time.Millisecond {
					t.Errorf("told %v before the expiry, want at least the drift margin of 1.5 s", margin)
				}
				var lost *holdfast.LostError
				if err := sess.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
					t.Errorf("Check: %v", err)
				}
			})
		})
	}
}

// A clock that runs slow by less than the margin.
func TestAClockThatRunsSlowIsCoveredByTheMargin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		mono := session.MonotonicClock()
		slow := func() time.Duration { return mono() * 92 / 100 }
		sess := f.open(t, session.Options{StayLost: true, Clock: slow})
		time.Sleep(31 * time.Second)
		f.set(func(f *fakeEtcd) { f.cut = true })
		for sess.State() != holdfast.Lost {
			time.Sleep(time.Millisecond)
		}
		if told, expires := time.Now(), f.expires(sess.Lease()); !told.Before(expires) {
			t.Errorf("told %v after the expiry", told.Sub(expires))
		}
	})
}

// A leader that was stopped and continued acknowledges renewals that the
// cluster, led by another meanwhile, has never seen.
func TestRenewalAcknowledgedAtAnotherTermDoesNotCount(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{StayLost: true, OnStateChange: events.tell})
		time.Sleep(11 * time.Second)
		expires := f.expires(sess.Lease())
		f.set(func(f *fakeEtcd) { f.oldTerm, f.term = 3, 4 })
		events.next(t, holdfast.Suspended)
		lost := events.next(t, holdfast.Lost)
		if now := time.Now(); !now.Before(expires) {
			t.Errorf("told %v after the expiry", now.Sub(expires))
		}
		if f.count("LeaseKeepAlive") < 4 {
			t.Errorf("only %d renewals: an unconfirmed one must be repeated", f.count("LeaseKeepAlive"))
		}
		if lost.Err == nil || lost.Lease != sess.Lease() {
			t.Errorf("event %+v", lost)
		}
	})
}

func TestShortOutageSuspendsAndReconnectsTheSameLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		id := sess.Lease()
		held, _ := lease.Open(sess.Ref()).Await(t.Context())
		f.set(func(f *fakeEtcd) { f.noRenew = true })
		start := time.Now()
		connected := held.ConnectedContext()
		events.next(t, holdfast.Suspended)
		if d := time.Since(start); d != 6750*time.Millisecond {
			t.Errorf("suspended after %v, want half of the trusted 13.5 s", d)
		}
		if err := sess.Check(); !errors.Is(err, holdfast.ErrSuspended) || sess.State() != holdfast.Suspended {
			t.Errorf("Check %v, state %v", err, sess.State())
		}
		<-connected.Done()
		if !errors.Is(context.Cause(connected), holdfast.ErrSuspended) {
			t.Errorf("cause %v", context.Cause(connected))
		}
		f.set(func(f *fakeEtcd) { f.noRenew = false })
		if err := held.AwaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		ev := events.next(t, holdfast.Connected)
		if !ev.Reconnected() || ev.Lease != id || sess.Lease() != id {
			t.Errorf("event %+v, id %x", ev, sess.Lease())
		}
		if held.ConnectedContext().Err() != nil {
			t.Error("ConnectedContext is done although reconnected")
		}
	})
}

// Invariant 2, and the new lease.
func TestLostIsForeverAndANewLeaseFollows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		old, _ := lease.Open(sess.Ref()).Await(t.Context())
		f.set(func(f *fakeEtcd) { f.cut = true })
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		f.set(func(f *fakeEtcd) { f.cut = false })
		ev := events.next(t, holdfast.Connected)
		if ev.Reconnected() || ev.Lease == old.ID() || sess.Lease() != ev.Lease {
			t.Errorf("event %+v, old lease %x", ev, old.ID())
		}
		if err := sess.Check(); err != nil {
			t.Errorf("the session did not recover: %v", err)
		}
		time.Sleep(time.Minute)
		if err := old.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the old lease came back: %v", err)
		}
		if !f.expires(old.ID()).IsZero() {
			t.Error("the old lease was not revoked")
		}
		if sess.Lease() != ev.Lease || f.count("LeaseGrant") != 2 {
			t.Errorf("the new lease %x did not last: %x after %d grants", ev.Lease, sess.Lease(), f.count("LeaseGrant"))
		}
	})
}

// Those who are told of a loss get the drift margin to hear it: the session
// itself must not let somebody else in earlier than etcd would have.
func TestLostLeaseIsNotRevokedBeforeTheMarginHasPassed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		old := sess.Lease()
		f.set(func(f *fakeEtcd) { f.noRenew = true }) // all but renewals is answered
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		events.next(t, holdfast.Connected)
		time.Sleep(1400 * time.Millisecond)
		if f.expires(old).IsZero() {
			t.Error("revoked within 1.4 s of the loss, the margin is 1.5 s")
		}
		time.Sleep(200 * time.Millisecond)
		if !f.expires(old).IsZero() {
			t.Error("not revoked after the margin")
		}
	})
}

// Invariant 2: a renewal that is confirmed after the deadline comes too late,
// even if no timer and no caller has noticed the deadline before.
func TestRenewalConfirmedTooLateDoesNotRevive(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		var ahead atomic.Int64 // a machine suspend: the clock jumps, timers do not
		mono := session.MonotonicClock()
		sess := f.open(t, session.Options{StayLost: true, Clock: func() time.Duration { return mono() + time.Duration(ahead.Load()) }})
		time.Sleep(6 * time.Second) // one renewal at 5 s: trusted until 18.5 s
		f.set(func(f *fakeEtcd) { f.replies = 300 * time.Millisecond })
		time.Sleep(4100 * time.Millisecond) // the one sent at 10 s is under way
		synctest.Wait()
		ahead.Store(int64(10 * time.Second)) // 20.1 s
		time.Sleep(600 * time.Millisecond)   // both answers have arrived; they would mean 23.5 s
		if err := sess.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Fatalf("Check: %v", err)
		}
	})
}

func TestMachineSuspendIsSeenByTheFirstCheck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		var slept atomic.Int64
		mono := session.MonotonicClock()
		sess := f.open(t, session.Options{StayLost: true, Clock: func() time.Duration { return mono() + time.Duration(slept.Load()) }})
		synctest.Wait()
		slept.Store(int64(14 * time.Second))
		var lost *holdfast.LostError
		if err := sess.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
			t.Fatalf("first Check after the suspend: %v", err)
		}
		if r := sess.Remaining(); r != 0 {
			t.Errorf("Remaining %v", r)
		}
	})
}

func TestRevokedLeaseIsLostWithItsCause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		revoked := int64(sess.Lease())
		f.set(func(f *fakeEtcd) { delete(f.expiry, revoked) })
		ev := events.next(t, holdfast.Lost)
		var lost *holdfast.LostError
		if !errors.As(ev.Err, &lost) || lost.Cause != holdfast.CauseRevoked {
			t.Errorf("%v", ev.Err)
		}
		events.next(t, holdfast.Connected)
	})
}

func TestAnotherClusterBehindTheEndpointsIsALoss(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		f.open(t, session.Options{OnStateChange: events.tell})
		f.set(func(f *fakeEtcd) { f.cluster = 8 })
		ev := events.next(t, holdfast.Lost)
		var lost *holdfast.LostError
		if !errors.As(ev.Err, &lost) || lost.Cause != holdfast.CauseClusterChanged {
			t.Errorf("%v", ev.Err)
		}
		events.next(t, holdfast.Connected)
	})
}

// A cluster that was set up anew has never heard of the lease either: that is
// not a revocation. Where nobody says which cluster it is, the loss is told
// without that, a quarter of a second later.
func TestLeaseThatAnotherClusterDoesNotKnowIsLostToThatCluster(t *testing.T) {
	for name, c := range map[string]struct {
		silent bool
		cause  holdfast.Cause
		after  time.Duration
	}{
		"that says who it is": {false, holdfast.CauseClusterChanged, renewal},
		"that does not":       {true, holdfast.CauseRevoked, renewal + 250*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f, events := newFakeEtcd(), newRecorder()
				sess := f.open(t, session.Options{OnStateChange: events.tell})
				synctest.Wait() // the watch of its key stands
				old, granted := int64(sess.Lease()), time.Now()
				f.set(func(f *fakeEtcd) { f.cluster, f.noRead = 8, c.silent; delete(f.expiry, old) })
				ev := events.next(t, holdfast.Lost)
				var lost *holdfast.LostError
				if !errors.As(ev.Err, &lost) || lost.Cause != c.cause || time.Since(granted) != c.after {
					t.Errorf("after %v: %v", time.Since(granted), ev.Err)
				}
				f.set(func(f *fakeEtcd) { f.noRead = false })
				events.next(t, holdfast.Connected)
			})
		})
	}
}

func TestTheTTLThatWasGrantedIsUsed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		f.ttl = 4 * time.Second
		sess := f.open(t, session.Options{TTL: 2 * time.Second})
		if r := sess.Remaining(); r != 3600*time.Millisecond {
			t.Errorf("trusted for %v, want 4 s less a tenth", r)
		}
	})
}

func TestLongLeasesAreTrustedForFiveMinutesAtMost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{TTL: 600 * time.Second})
		if r := sess.Remaining(); r != 240*time.Second {
			t.Errorf("trusted for %v, want 300 s less 60 s", r)
		}
	})
}

// After a machine suspend the clock has jumped and the timers have not: a waiter
// sees Suspended by the clock, and the renewal may be confirmed before the
// watchdog has looked. It must be woken all the same. Found by the simulation.
func TestWaiterThatSawASuspensionTheWatchdogMissedIsWoken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		var slept atomic.Int64
		mono := session.MonotonicClock()
		sess := f.open(t, session.Options{Clock: func() time.Duration { return mono() + time.Duration(slept.Load()) }})
		l, err := lease.Open(sess.Ref()).Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4900 * time.Millisecond) // the renewal is due in 100 ms, the watchdog's timer in 1.85 s
		slept.Store(int64(3 * time.Second))
		if err := l.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatalf("Check: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.AwaitConnected(ctx); err != nil {
			t.Errorf("AwaitConnected: %v, although Check says %v", err, l.Check())
		}
	})
}

// A loss for want of an answer says what was asked, and of which endpoints.
func TestLossSaysWhichRequestNoEndpointHasAnswered(t *testing.T) {
	for request, cut := range map[string]func(f *fakeEtcd){
		"the renewal was answered by none of passthrough:///fake":                        func(f *fakeEtcd) { f.noRenew = true },
		"the read that confirms the renewal was answered by none of passthrough:///fake": func(f *fakeEtcd) { f.noRead = true },
	} {
		bubble.Test(t, func(t *testing.T) {
			f, events := newFakeEtcd(), newRecorder()
			f.open(t, session.Options{OnStateChange: events.tell})
			synctest.Wait() // the watch of its key stands
			f.set(cut)
			for _, state := range []holdfast.State{holdfast.Suspended, holdfast.Lost} {
				if ev := events.next(t, state); ev.Err == nil || !strings.Contains(ev.Err.Error(), request) {
					t.Errorf("%v: %v, want %q", state, ev.Err, request)
				}
			}
		})
	}
}
