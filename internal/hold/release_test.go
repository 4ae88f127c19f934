package hold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
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
func TestRemovalThatWasNotSentIsNotOfUnknownOutcome(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var metrics kit.Metrics
		p := holdtest.Start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "enqueue" {
				f.Request = 100 * time.Millisecond
			}
			return f
		})
		var others []<-chan holdtest.Result
		for i := range holdtest.MaxInFlight {
			others = append(others, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue(fmt.Sprint(i))))
		}
		synctest.Wait()
		if err := h.Release(kit.Within(t, holdtest.MaxWait/2)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Release: %v", err)
		}
		for _, done := range others {
			holdtest.MustRelease(t, holdtest.Granted(t, srv, done).H)
		}
		kit.NothingStands(t, srv)
		for point, n := range metrics.Points(t) {
			if strings.HasPrefix(point, "replies.ambiguous") {
				t.Errorf("%d of %s", n, point)
			}
		}
	})
}

// Release does not wait for a reply once the lease is lost: the hold ends with it.
func TestUnansweredReleaseEndsWithTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.Link.BlackHole()
		const before = time.Second // less than an attempt may take
		time.Sleep(p.Sess.Remaining() - before)
		began := time.Now()
		err := h.Release(kit.Within(t, time.Minute))
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Release: %v", err) // etcd may have carried it out before the session gave the lease up
		}
		if took := time.Since(began); took > before+time.Millisecond {
			t.Errorf("Release took %v, and the lease was lost after %v", took, before)
		}
	})
}

// etcd answers the rest of a TTL in whole seconds, rounded down: 0 for a lease of one second
// that exists, -1 for one that does not. The deletion of one entry must not end the other
// holds.
func TestEntryDeletedOnALeaseOfOneSecondIsNoLossOfTheLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(&etcdfake.Options{MinTTL: time.Second})
		t.Cleanup(srv.Close)
		p := holdtest.Start(t, srv, func(o *session.Options) { o.TTL, o.DriftMargin = time.Second, 0 })
		deleted, other := holdtest.MustAcquire(t, p.Queue("deleted")), holdtest.MustAcquire(t, p.Queue("other"))
		time.Sleep(3 * time.Second)
		srv.Delete(deleted.Key())
		<-deleted.Done()
		var lost *holdfast.LostError
		if err := deleted.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
			t.Errorf("the hold whose entry was deleted: %v", err)
		}
		if err := other.Check(); err != nil {
			t.Errorf("the other hold: %v", err)
		}
	})
}

// Scenario 5. A release that etcd does not answer returns at its deadline. When etcd is back,
// the lease is renewed, and the entry is removed within one pause between two attempts.
func TestUnansweredReleaseIsFinishedAsSoonAsEtcdIsBack(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, a.Queue("x"))
		waiter := holdtest.AcquireLater(t.Context(), b.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		a.Link.Cut()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, holdfast.ErrOutcomeUnknown) || time.Since(begin) != 2*time.Second {
			t.Errorf("Release after %v: %v", time.Since(begin), err)
		}
		time.Sleep(8 * time.Second)
		if kvs := kit.Standing(srv, "x"); len(kvs) != 2 {
			t.Fatalf("entries %v: the connection is not cut", kvs)
		}
		lease := a.Sess.Lease()
		a.Heal()
		back := time.Now()
		if r := <-waiter; r.Err != nil || time.Since(back) > time.Second+10*kit.OneWay {
			t.Errorf("the waiter after %v: %v", time.Since(back), r.Err)
		}
		time.Sleep(time.Second)
		if a.Sess.Check() != nil || a.Sess.Lease() != lease {
			t.Errorf("the session: %v, lease %x (was %x)", a.Sess.Check(), a.Sess.Lease(), lease)
		}
	})
}
