package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// Of a holder whose lease was revoked before it queued, a client sees nothing. But what it waits for has queued before
// the revocation, delays for that, and may neither hold nor leave earlier.
func TestNewcomerAtASemaphoreIsHeldBackByAWaiterOfARevokedHolder(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		revoked := kit.JoinPermit(t, srv, kit.Permits("x"), 1)
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), a.Permits(1, 1))
		kit.Queued(t, srv, kit.Permits("x"), 2)
		revoked.Revoke()
		began := time.Now()
		newcomer := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Permits(1, 1))
		for _, done := range []<-chan holdtest.Result{waiter, newcomer} {
			r := <-done
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if held := time.Since(began); held < kit.LockDelay || held > kit.LockDelay+2*kit.Prompt {
				t.Errorf("held %v after the revocation", held)
			}
			holdtest.MustRelease(t, r.H)
		}
	})
}

// A permit that waits holds a newcomer back only while it stands and there is no room for both.
func TestNewcomerAtASemaphoreIsHeldBackWhileThereIsNoRoom(t *testing.T) {
	for name, c := range map[string]struct {
		then     func(beside *kit.Peer, giveUp context.CancelFunc)
		heldBack bool
	}{
		"there is room for one":       {func(*kit.Peer, context.CancelFunc) {}, true},
		"there is room for both":      {func(beside *kit.Peer, _ context.CancelFunc) { beside.Release() }, false},
		"the one that waits gives up": {func(_ *kit.Peer, giveUp context.CancelFunc) { giveUp() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				kit.SetLimit(t, srv, 2, 2)
				revoked, beside := kit.JoinPermit(t, srv, kit.Permits("x"), 1), kit.JoinPermit(t, srv, kit.Permits("x"), 1)
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				defer giveUp()
				waiter := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 1))
				kit.Queued(t, srv, kit.Permits("x"), 3)
				revoked.Revoke()
				began := time.Now()
				newcomer := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1))
				kit.Queued(t, srv, kit.Permits("x"), 3)
				c.then(beside, giveUp)
				go func() { // the waiter releases, or has given up
					if r := <-waiter; r.Err == nil {
						_ = r.H.Release(context.Background())
					}
				}()
				r := <-newcomer
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if held := r.At.Sub(began); (held >= kit.LockDelay) != c.heldBack {
					t.Errorf("the newcomer held %v after the revocation", held)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}
