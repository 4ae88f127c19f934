package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// inPauses runs f in virtual time with a session whose pauses are 1 s, 2 s, 4 s, … without jitter.
func inPauses(t *testing.T, f func(t *testing.T, srv *etcdfake.Server, sess *session.Session, host *lease.Host)) {
	t.Helper()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess, err := session.New(t.Context(), srv.Client(t), session.Options{Retry: backoff.Policy{
			Initial: time.Second, Max: time.Minute, Rand: func() float64 { return 0.999999 },
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sess.Close(context.Background()) }()
		f(t, srv, sess, lease.Open(sess))
	})
}

func TestPausesGrowAndBeginAnew(t *testing.T) {
	inPauses(t, func(t *testing.T, _ *etcdfake.Server, _ *session.Session, host *lease.Host) {
		var p lease.Pauses
		var took []time.Duration
		for i := range 4 {
			if i == 3 {
				p.Reset()
			}
			began := time.Now()
			if err := p.Next(t.Context(), host.Env); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began).Round(time.Second))
		}
		if took[0] >= took[1] || took[1] >= took[2] || took[3] != took[0] {
			t.Errorf("pauses: %v", took)
		}
	})
}

func TestPauseEndsWithItsContextAndWithTheSession(t *testing.T) {
	inPauses(t, func(t *testing.T, _ *etcdfake.Server, sess *session.Session, host *lease.Host) {
		var p lease.Pauses
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := p.Next(ctx, host.Env); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.AfterFunc(time.Millisecond, func() { _ = sess.Close(context.Background()) })
		if err := p.Next(t.Context(), host.Env); !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
	})
}

// What is retried under a lease is called again after the session's pause, and ends with the lease.
func TestRetryUnderALeaseEndsWithIt(t *testing.T) {
	inPauses(t, func(t *testing.T, srv *etcdfake.Server, _ *session.Session, host *lease.Host) {
		l, err := host.Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		called, began := 0, time.Now()
		notYet := errors.New("not yet")
		err = lease.RetryUnder(t.Context(), host.Env, l, func(context.Context) error {
			if called++; called < 3 {
				return retry.Again(notYet)
			}
			return nil
		})
		if err != nil || called != 3 || time.Since(began) < time.Second {
			t.Errorf("after %v: %d calls, %v", time.Since(began), called, err)
		}
		time.AfterFunc(time.Minute, func() { srv.Revoke(l.ID()) })
		err = lease.RetryUnder(t.Context(), host.Env, l, func(context.Context) error { return retry.Again(notYet) })
		if !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, notYet) {
			t.Errorf("after the lease was lost: %v", err)
		}
	})
}

func TestRetriesLeaveNothingThatListensToTheirContext(t *testing.T) {
	inPauses(t, func(t *testing.T, _ *etcdfake.Server, _ *session.Session, host *lease.Host) {
		ctx, called := &kit.Listened{Context: t.Context()}, 0
		err := lease.RetryUnder(ctx, host.Env, host.Lease(), func(context.Context) error {
			if called++; called == 1 {
				return retry.Again(errors.New("not yet"))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx.NothingListens(t, "RetryUnder")

		ctx = &kit.Listened{Context: t.Context()}
		var p lease.Pauses
		if err := p.Next(ctx, host.Env); err != nil {
			t.Fatal(err)
		}
		ctx.NothingListens(t, "a pause")
	})
}
