package session_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/session"
)

func TestAcknowledgementIsKeptUntilItsProofIsAnswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		f.set(func(f *fakeEtcd) { f.noRead = true })
		time.Sleep(12 * time.Second) // the renewal was sent after 5.06 s, the lease is given up after 13.5 s
		if n := f.count("LeaseKeepAlive"); n != 1 {
			t.Errorf("%d renewals, want one: it was acknowledged", n)
		}
		f.set(func(f *fakeEtcd) { f.noRead = false })
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Connected)
		// It counts from when it was sent, so the next one is due at once.
		synctest.Wait()
		if n, left := f.count("LeaseKeepAlive"), sess.Remaining(); n != 2 || left < 13*time.Second {
			t.Errorf("%d renewals, trusted for %v", n, left)
		}
	})
}

func TestAcknowledgementOfAnotherTermIsDropped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		f.set(func(f *fakeEtcd) { f.noRead = true })
		time.Sleep(6 * time.Second)
		f.set(func(f *fakeEtcd) { f.noRead, f.term = false, f.term+1 })
		time.Sleep(2 * time.Second)
		if n := f.count("LeaseKeepAlive"); n != 2 || sess.Check() != nil {
			t.Errorf("%d renewals, want a second one at the new term; Check: %v", n, sess.Check())
		}
	})
}

// A renewal that hangs leaves an eighth of the trusted time to send others,
// whatever the TTL and the margin are.
func TestOneRenewalThatIsNotAnsweredDoesNotSuspend(t *testing.T) {
	for _, o := range []session.Options{{TTL: 2 * time.Second}, {TTL: 5 * time.Second}, {}, {DriftMargin: 3750 * time.Millisecond}, {TTL: 600 * time.Second}} {
		for _, rpc := range []string{"LeaseKeepAlive", "Range"} {
			bubble.Test(t, func(t *testing.T) {
				f, events := newFakeEtcd(), newRecorder()
				o := o
				o.OnStateChange = events.tell
				sess := f.open(t, o)
				for range 20 {
					f.set(func(f *fakeEtcd) { f.mute[rpc] = 1 })
					time.Sleep(sess.Remaining())
				}
				if len(events) != 0 {
					t.Errorf("TTL %v, margin %v, first %s of each renewal not answered: %v", o.TTL, o.DriftMargin, rpc, (<-events).State)
				}
			})
		}
	}
}

func TestLegalOptionsDoNotMakeAHealthySessionSuspended(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, 15 * time.Second, 300 * time.Second, 600 * time.Second} {
		for _, margin := range []time.Duration{0, ttl / 100, ttl / 10, ttl / 4} {
			bubble.Test(t, func(t *testing.T) {
				f, events := newFakeEtcd(), newRecorder()
				f.open(t, session.Options{TTL: ttl, DriftMargin: margin, OnStateChange: events.tell})
				time.Sleep(10 * ttl)
				if len(events) != 0 {
					t.Errorf("TTL %v, margin %v: %v after %d renewals", ttl, margin, (<-events).State, f.count("LeaseKeepAlive"))
				}
			})
		}
	}
}

// Whatever etcd answers, nothing is sent again without a pause, by etcd's client
// neither.
func TestRenewalsThatAreRefusedAtOnceArePaced(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted, codes.PermissionDenied} {
		for _, rpc := range []string{"LeaseKeepAlive", "Range"} {
			t.Run(code.String()+" "+rpc, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					f, events := newFakeEtcd(), newRecorder()
					sess := f.open(t, session.Options{OnStateChange: events.tell})
					synctest.Wait() // the watch of the session key stands
					f.set(func(f *fakeEtcd) { f.refuse[rpc] = status.Error(code, "refused") })
					before := f.count(rpc)
					events.next(t, holdfast.Suspended)
					f.set(func(f *fakeEtcd) { delete(f.refuse, rpc) })
					events.next(t, holdfast.Connected)
					if err := sess.Check(); err != nil {
						t.Error(err)
					}
					// etcd's client repeats some of them by itself, each 25 ms here.
					if n := f.count(rpc) - before; n > 200 {
						t.Errorf("sent %d times in 1.7 s", n)
					}
				})
			})
		}
	}
}

func TestNotifyCannotDelayRenewals(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events, forever := newFakeEtcd(), newRecorder(), make(chan struct{})
		defer close(forever)
		var blocked atomic.Bool
		f.open(t, session.Options{OnStateChange: events.tell, Retry: backoff.Policy{Notify: func(error, time.Duration) {
			blocked.Store(true)
			<-forever
		}}})
		f.set(func(f *fakeEtcd) { f.refuse["LeaseKeepAlive"] = status.Error(codes.Unavailable, "refused") })
		time.Sleep(5500 * time.Millisecond)
		f.set(func(f *fakeEtcd) { delete(f.refuse, "LeaseKeepAlive") })
		time.Sleep(time.Minute)
		if len(events) != 0 || blocked.Load() {
			t.Errorf("%d events; called for a renewal: %v", len(events), blocked.Load())
		}
	})
}

func TestGrantThatIsNotAnsweredIsSentAgainAndLeavesNoLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		f.mute["LeaseGrant"] = 2
		began := time.Now()
		sess := f.open(t, session.Options{})
		if took := time.Since(began); took != 625*time.Millisecond || f.count("LeaseGrant") != 3 {
			t.Errorf("granted after %v, by %d requests", took, f.count("LeaseGrant"))
		}
		synctest.Wait()
		leases := 0
		f.set(func(f *fakeEtcd) { leases = len(f.expiry) })
		if leases != 1 || f.expires(sess.Lease()).IsZero() {
			t.Errorf("%d leases, want the session's alone", leases)
		}
		if err := errors.Join(sess.Check(), sess.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// Where everything takes long, the pauses follow: what is on its way is not asked
// for again and again.
func TestSlowAnswersAreNotAskedForAgain(t *testing.T) {
	for _, c := range []struct {
		ttl, trip time.Duration
		most      float64 // renewals a second
	}{
		{15 * time.Second, time.Second, 0.2},
		{15 * time.Second, 3 * time.Second, 0.4}, // beyond the longest pause of 2 s, so each is sent twice
		{5 * time.Second, time.Second, 1.1},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFakeEtcd()
			sess := f.open(t, session.Options{TTL: c.ttl, StayLost: true})
			f.set(func(f *fakeEtcd) { f.requests, f.replies = c.trip/2, c.trip/2 })
			time.Sleep(time.Minute)
			renewals, reads := f.count("LeaseKeepAlive"), f.count("Range")
			time.Sleep(10 * time.Minute)
			renewals, reads = f.count("LeaseKeepAlive")-renewals, f.count("Range")-reads
			if err := sess.Check(); errors.Is(err, holdfast.ErrLost) || max(renewals, reads) > int(600*c.most) {
				t.Errorf("TTL %v, round trip %v: %d renewals and %d reads in ten minutes; %v", c.ttl, c.trip, renewals, reads, err)
			} else {
				t.Logf("TTL %v, round trip %v: %d renewals and %d reads in ten minutes", c.ttl, c.trip, renewals, reads)
			}
		})
	}
}
