package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Scenario 9. A waiter's context is canceled at any moment around its grant: it gets an
// error and has no entry, then or later, or it holds.
func TestWaiterCanceledAsItIsGrantedHoldsOrLeavesNothing(t *testing.T) {
	for name, waiting := range map[string]func(t *testing.T, srv *etcdfake.Server, a,
		b *holdtest.Process) (release func()){
		"the lock is free": func(*testing.T, *etcdfake.Server, *holdtest.Process,
			*holdtest.Process) func() {
			return func() {}
		},
		"behind another process": func(t *testing.T, _ *etcdfake.Server, a, _ *holdtest.Process) func() {
			h := holdtest.MustAcquire(t, a.Queue("x"))
			return func() { holdtest.MustRelease(t, h) }
		},
		"behind its own process": func(t *testing.T, _ *etcdfake.Server, _, b *holdtest.Process) func() {
			h := holdtest.MustAcquire(t, b.Queue("x"))
			return func() { holdtest.MustRelease(t, h) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			granted, canceled := 0, 0
			holdtest.AtEveryMoment(t, 0, 12*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				release := waiting(t, srv, a, b)
				ctx, cancel := context.WithCancel(t.Context())
				waiter := holdtest.AcquireLater(ctx, b.Queue("x"))
				if name != "the lock is free" {
					time.Sleep(time.Second)
					go release() // ends before the bubble does
				}
				time.Sleep(offset)
				cancel()
				r := <-waiter
				if r.Err == nil {
					granted++
					if r.H.Check() != nil || !holdtest.IsFirst(srv, r.H) {
						t.Errorf("success: Check %v, entries %v", r.H.Check(), kit.Standing(srv, "x"))
					}
					holdtest.MustRelease(t, r.H)
				} else {
					canceled++
					if !errors.Is(r.Err, context.Canceled) {
						t.Error(r.Err)
					}
				}
				time.Sleep(time.Second)
				if left := kit.Standing(srv, "x"); len(left) != 0 {
					t.Errorf("returned %v, and left %v", r.Err, left)
				}
				time.Sleep(time.Minute)
				for _, c := range srv.History(holdtest.EntriesX) {
					if !c.Deleted && time.Since(c.At) < time.Minute {
						t.Errorf("an entry was put afterwards: %v", c.Kv)
					}
				}
			})
			if granted == 0 || canceled == 0 {
				t.Errorf("granted %d times, canceled %d times: the moments are not around the grant", granted, canceled)
			}
		})
	}
}
