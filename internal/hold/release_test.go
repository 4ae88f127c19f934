package hold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The contexts of a hold are canceled when Release begins. That does not end the release, and
// the deadline of a context that outlives the hold counts.
func TestReleaseIsBoundedByTheContextThatOutlivesTheHold(t *testing.T) {
	threeSeconds := func(own context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(own), 3*time.Second)
	}
	background := func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }
	dead := func() (context.Context, context.CancelFunc) {
		ctx, cancel := background()
		cancel()
		return ctx, cancel
	}
	brief := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 3*time.Millisecond)
	}
	for name, c := range map[string]struct {
		parent func() (context.Context, context.CancelFunc)
		from   func(own context.Context) (context.Context, context.CancelFunc)
		bound  time.Duration
	}{
		"the hold's own": {background, context.WithCancel, kit.CloseTimeout},
		"a child of the hold's own, with a deadline": {background, func(
			own context.Context,
		) (context.Context, context.CancelFunc) {
			return context.WithTimeout(own, time.Second)
		}, kit.CloseTimeout},
		"a clean-up context":                      {background, threeSeconds, 3 * time.Second},
		"a clean-up context, the parent is dead":  {dead, threeSeconds, 3 * time.Second},
		"a clean-up context, the parent has 3 ms": {brief, threeSeconds, 3 * time.Second},
		"the hold's own, the parent has 3 ms":     {brief, context.WithCancel, kit.CloseTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				for _, reachable := range []bool{true, false} {
					h := holdtest.MustAcquire(t, p.Queue("x"))
					parent, cancel := c.parent()
					defer cancel()
					own, cancel := h.Context(parent, false)
					defer cancel()
					ctx, cancel := c.from(own)
					defer cancel()
					if !reachable {
						p.Link.BlackHole()
					}
					began := time.Now()
					err := h.Release(ctx)
					took := time.Since(began)
					if reachable && (err != nil || took != 2*kit.OneWay) {
						t.Errorf("Release: %v after %v, want success after a round trip", err, took)
					}
					if !reachable && (took != c.bound || !errors.Is(err, holdfast.ErrOutcomeUnknown)) {
						t.Errorf("cut off, Release returned after %v, want %v: %v", took, c.bound, err)
					}
				}
				p.Heal()
				time.Sleep(10 * time.Second)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// Scenario 10. The context of Release ends at any moment: it has released, or it says that
// the outcome is unknown. Either way the entry is gone a moment later.
func TestCanceledReleaseHasReleasedOrSaysUnknown(t *testing.T) {
	released, unknown := 0, 0
	holdtest.AtEveryMoment(t, 0, 4*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		a := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, a.Queue("x"))
		ctx, cancel := context.WithTimeout(t.Context(), offset)
		defer cancel()
		err := h.Release(ctx)
		switch {
		case err == nil:
			released++
			if left := kit.Standing(srv, "x"); len(left) != 0 {
				t.Errorf("Release returned nil, entries %v", left)
			}
		case errors.Is(err, holdfast.ErrOutcomeUnknown) && errors.Is(err, context.DeadlineExceeded):
			unknown++
		default:
			t.Errorf("Release: %v", err)
		}
		if err := h.Check(); err != holdfast.ErrReleased {
			t.Errorf("Check: %v", err)
		}
		time.Sleep(2 * kit.OneWay)
		if left := kit.Standing(srv, "x"); len(left) != 0 {
			t.Errorf("Release returned %v, entries %v", err, left)
		}
	})
	if released == 0 || unknown == 0 {
		t.Errorf("released %d times, unknown %d times: the moments are not around the answer", released, unknown)
	}
}

// The caller of Release gives up before its request is answered. The session goes on with the
// release and finds the entry gone, by that very request.
func TestReleaseCarriedOutAfterItsCallerGaveUpIsNoLoss(t *testing.T) {
	for name, nextInLine := range map[string]bool{"no other call waits": false, "another call joins meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				q := p.Queue("x")
				h := holdtest.MustAcquire(t, q)
				p.Link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseReply: true, Silent: true} })
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				done := make(chan error, 1)
				go func() { done <- h.Release(ctx) }() // received below
				time.Sleep(kit.OneWay + time.Millisecond)
				if len(kit.Standing(srv, "x")) != 0 {
					t.Fatal("the entry stands")
				}
				p.Link.Plan(nil)
				var next <-chan holdtest.Result
				if nextInLine {
					next = holdtest.AcquireLater(kit.Within(t, time.Minute), q)
					time.Sleep(time.Millisecond)
				}
				giveUp()
				if err := <-done; !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
					t.Errorf("Release: %v", err)
				}
				if err := h.Release(kit.Within(t, time.Minute)); err != nil {
					t.Errorf("Release, called again: %v", err)
				}
				if nextInLine {
					holdtest.ReleaseAll(t, srv, holdtest.MustHold(t, srv, []<-chan holdtest.Result{next}))
				}
				kit.NothingStands(t, srv)
			})
		})
	}
}

// Four requests are in flight, so the removal waits for a batch, and its caller gives up before that is sent. Nothing
// of it is unknown: the session sends it.
// Release does not wait for a reply once the lease is lost: the hold ends with it.
// etcd answers the rest of a TTL in whole seconds, rounded down: 0 for a lease of one second
// that exists, -1 for one that does not. The deletion of one entry must not end the other
// holds.
// Scenario 5. A release that etcd does not answer returns at its deadline. When etcd is back,
// the lease is renewed, and the entry is removed within one pause between two attempts.
