package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A holder that reaches no member has lost its lease. With the default lock delay of 2 s, calls of 1 s get in by the
// third: the session remembers when it first saw the claim dead.
func TestTryAcquireBelowTheLockDelayGetsInByTheThirdCall(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		dies, sess := srv.Link(), open(t, srv.Client(t), session.Options{})
		lost := open(t, dies.Client(), session.Options{})
		if _, err := locker.NewSemaphore(lost, "x", 1).Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		dies.BlackHole()
		srv.Revoke(lost.Lease())
		began, calls := time.Now(), 0
		for {
			calls++
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			p, err := locker.NewSemaphore(sess, "x", 1).TryAcquire(ctx, 1)
			cancel()
			if err == nil {
				if err := p.Release(t.Context()); err != nil {
					t.Error(err)
				}
				break
			}
			if !errors.Is(err, locker.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) || calls == 10 {
				t.Fatalf("call %d: %v", calls, err)
			}
		}
		// The second call ends at the instant at which the delay does.
		if took := time.Since(began); calls < 2 || calls > 3 || took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("call %d got in after %v, want the second or third, after 2s", calls, took)
		}
		dies.Heal()
	})
}
