package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// granted returns a lease with a TTL of 10 s and a margin of 2 s, so trusted for
// 8 s, and the clock it is judged by.
func granted() (*lease.Lease, *time.Duration) {
	now := time.Hour
	l := lease.New(lease.Origin{ID: 7, TTL: 10 * time.Second, Margin: 2 * time.Second, Sent: now},
		func() time.Duration { return now })
	return l, &now
}

// renew has the lease renewed by requests that were sent at a time, and reports whether that counts.
func renew(l *lease.Lease, sent, ttl time.Duration) bool {
	l.Acknowledge(sent, ttl, 1)
	l.Prove(sent, 1)
	_, renewed := l.RenewedSince(sent)
	return renewed
}

func TestLeaseIsSuspendedHalfwayAndLostWhenTrustEnds(t *testing.T) {
	l, now := granted()
	if err := l.Check(); err != nil || l.UntilRenewal() != 3*time.Second || l.UntilChange(nil) != 4*time.Second {
		t.Errorf("%v, renewal in %v, change in %v", err, l.UntilRenewal(), l.UntilChange(nil))
	}
	*now += 4*time.Second - 1
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	*now++
	if err := l.Check(); err != holdfast.ErrSuspended || l.Remaining() != 4*time.Second {
		t.Errorf("%v, %v remain", err, l.Remaining())
	}
	l.Failed(errors.New("connection refused"))
	*now += 4 * time.Second
	var lost *holdfast.LostError
	if err := l.Check(); !errors.As(err, &lost) || lost.Lease != 7 || lost.Cause != holdfast.CauseExpired ||
		lost.Since != 8*time.Second || !errors.Is(err, l.Failure()) {
		t.Errorf("%v", err)
	}
	if context.Cause(l.Context()) != error(lost) || context.Cause(l.ConnectedContext()) != error(lost) ||
		l.Remaining() != 0 {
		t.Errorf("contexts end with %v, %v", context.Cause(l.Context()), context.Cause(l.ConnectedContext()))
	}
}

func TestRenewalConfirmedAfterTrustEndedDoesNotCount(t *testing.T) {
	l, now := granted()
	sent := *now
	*now += 8 * time.Second
	if renew(l, sent+7*time.Second, 10*time.Second) {
		t.Error("confirmed")
	}
	if err := l.Check(); !errors.Is(err, holdfast.ErrLost) {
		t.Error(err)
	}
}

func TestFirstLossIsFinal(t *testing.T) {
	l, now := granted()
	first := l.Lose(holdfast.CauseRevoked, nil)
	*now += time.Minute
	if second := l.Lose(holdfast.CauseClosed, nil); second != first || l.Check() != error(first) || l.Lost() != first {
		t.Errorf("%v, then %v", first, second)
	}
	if renew(l, *now, 10*time.Second) {
		t.Error("confirmed after the loss")
	}
}

// A process that was paused until its lease expired may read etcd's refusal before anything has looked at the clock.
func TestLeaseThatIsGoneAfterTrustEndedHasExpired(t *testing.T) {
	refused := errors.New("requested lease not found")
	for after, want := range map[time.Duration]holdfast.Cause{
		8*time.Second - 1: holdfast.CauseRevoked,
		8 * time.Second:   holdfast.CauseExpired,
	} {
		l, now := granted()
		*now += after
		if lost := l.Lose(holdfast.CauseRevoked, refused); lost.Cause != want || !errors.Is(lost, refused) {
			t.Errorf("after %v: %v", after, lost)
		}
	}
}

func TestLossSaysWhyTheRenewalsFailedUnlessItsCauseIsKnown(t *testing.T) {
	refused, reason := errors.New("connection refused"), errors.New("the session was closed")
	for _, c := range []struct {
		cause     holdfast.Cause
		err, want error
	}{
		{holdfast.CauseExpired, nil, refused},
		{holdfast.CauseExpired, reason, reason},
		{holdfast.CauseRevoked, nil, nil},
		{holdfast.CauseRevoked, reason, reason},
	} {
		l, _ := granted()
		l.Failed(refused)
		if lost := l.Lose(c.cause, c.err); lost.Err != c.want {
			t.Errorf("%v with %v: the loss says %v, want %v", c.cause, c.err, lost.Err, c.want)
		}
	}
}

func TestRenewalIsTrustedFromItsSendTimeAndForAtMostItsTTL(t *testing.T) {
	l, now := granted()
	sent := *now + 4*time.Second
	*now += 5 * time.Second // suspended
	l.Suspend()
	if err := context.Cause(l.ConnectedContext()); err != holdfast.ErrSuspended {
		t.Errorf("cause %v", err)
	}
	if !renew(l, sent, 6*time.Second) { // etcd's reply has a shorter TTL than the grant
		t.Fatal("not confirmed")
	}
	if l.Remaining() != 3*time.Second || l.Check() != nil {
		t.Errorf("%v remain, %v", l.Remaining(), l.Check())
	}
	l.Suspend() // by a watchdog that has judged the lease before the renewal
	if l.ConnectedContext().Err() != nil {
		t.Error("a confirmed renewal does not bring back the connected context")
	}
}

func TestTrustIsCappedAndTheMarginHasADefault(t *testing.T) {
	clock := func() time.Duration { return 0 }
	for _, c := range []struct{ ttl, margin, trust time.Duration }{
		{time.Second, 200 * time.Millisecond, 800 * time.Millisecond},
		{15 * time.Second, 1500 * time.Millisecond, 13500 * time.Millisecond},
		{600 * time.Second, 60 * time.Second, 240 * time.Second},
	} {
		l := lease.New(lease.Origin{TTL: c.ttl}, clock)
		if l.Margin() != c.margin || l.Trust() != c.trust || l.Remaining() != c.trust {
			t.Errorf("TTL %v: margin %v, trust %v", c.ttl, l.Margin(), l.Trust())
		}
	}
}

func TestAwaitConnectedEndsWithTheRenewalTheLossOrTheContext(t *testing.T) {
	stop := errors.New("stop")
	for name, end := range map[string]struct {
		by   func(l *lease.Lease, cancel context.CancelCauseFunc)
		want error
	}{
		"renewal": {func(l *lease.Lease, _ context.CancelCauseFunc) {
			renew(l, time.Hour+5*time.Second, 10*time.Second)
		}, nil},
		"loss":    {func(l *lease.Lease, _ context.CancelCauseFunc) { l.Lose(holdfast.CauseRevoked, nil) }, holdfast.ErrLost},
		"context": {func(_ *lease.Lease, cancel context.CancelCauseFunc) { cancel(stop) }, stop},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				l, now := granted()
				*now += 5 * time.Second
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan error, 1)
				go func() { done <- l.AwaitConnected(ctx) }()
				synctest.Wait()
				if len(done) != 0 {
					t.Fatalf("did not wait: %v", <-done)
				}
				end.by(l, cancel)
				if err := <-done; !errors.Is(err, end.want) {
					t.Errorf("%v, want %v", err, end.want)
				}
			})
		})
	}
}

// A reply that was kept until its proof came may be so old that the lease stays suspended although it is confirmed.
func TestHoldersStaySuspendedIfTheConfirmedRenewalIsOld(t *testing.T) {
	l, now := granted()
	sent := *now + 2*time.Second
	*now += 7 * time.Second
	l.Suspend()
	if !renew(l, sent, 10*time.Second) || l.Check() != holdfast.ErrSuspended {
		t.Fatalf("%v", l.Check())
	}
	if context.Cause(l.ConnectedContext()) != holdfast.ErrSuspended {
		t.Error("the lease is suspended, and its connected context lives")
	}
}

// unconfirmed returns the time since the last confirmed renewal of a lease was sent.
func unconfirmed(l *lease.Lease) time.Duration { return l.Trust() - l.Remaining() }
