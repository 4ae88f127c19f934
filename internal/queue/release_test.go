package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// The contexts of a lock end as Unlock begins. That does not cut the release
// short, and the deadline of a context that outlives the lock counts as it is.
func TestUnlockIsBoundedByTheContextThatLivesOnceTheLockHasEnded(t *testing.T) {
	const closeTimeout = 5 * time.Second // the default
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
		"the lock's own": {background, context.WithCancel, closeTimeout},
		"a child of the lock's own, with a deadline": {background, func(own context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(own, time.Second)
		}, closeTimeout},
		"a clean-up context":                      {background, threeSeconds, 3 * time.Second},
		"a clean-up context, the parent is dead":  {dead, threeSeconds, 3 * time.Second},
		"a clean-up context, the parent has 3 ms": {brief, threeSeconds, 3 * time.Second},
		"the lock's own, the parent has 3 ms":     {brief, context.WithCancel, closeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				for _, reachable := range []bool{true, false} {
					h := mustAcquire(t, p.queue("x"))
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
						t.Errorf("Unlock: %v after %v, want success after a round trip", err, took)
					}
					if !reachable && (took != c.bound || !errors.Is(err, holdfast.ErrOutcomeUnknown)) {
						t.Errorf("cut off, Unlock returned after %v, want %v: %v", took, c.bound, err)
					}
				}
				p.Heal()
				time.Sleep(10 * time.Second)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// Scenario 10. The context of Unlock ends at any moment of it: it has released,
// or says that it does not know, and either way the entry goes at once.
func TestUnlockCancelledOnTheWayHasReleasedOrSaysUnknown(t *testing.T) {
	released, unknown := 0, 0
	atEveryMoment(t, 0, 4*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		a := start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		ctx, cancel := context.WithTimeout(t.Context(), offset)
		defer cancel()
		err := h.Release(ctx)
		switch {
		case err == nil:
			released++
			if left := kit.Standing(srv, "x"); len(left) != 0 {
				t.Errorf("Unlock returned nil, entries %v", left)
			}
		case errors.Is(err, holdfast.ErrOutcomeUnknown) && errors.Is(err, context.DeadlineExceeded):
			unknown++
		default:
			t.Errorf("Unlock: %v", err)
		}
		if err := h.Check(); err != holdfast.ErrReleased {
			t.Errorf("Check: %v", err)
		}
		time.Sleep(2 * kit.OneWay)
		if left := kit.Standing(srv, "x"); len(left) != 0 {
			t.Errorf("Unlock returned %v, entries %v", err, left)
		}
	})
	if released == 0 || unknown == 0 {
		t.Errorf("released %d times, unknown %d times: the moments are not around the answer", released, unknown)
	}
}

// The caller of Unlock sends the request, and leaves before it is answered. What
// goes on in its stead finds the entry gone, by that very request.
func TestUnlockThatWasCarriedOutForACallerWhoLeftIsNoLoss(t *testing.T) {
	for name, nextInLine := range map[string]bool{"nobody is next": false, "somebody joins meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				q := p.queue("x")
				h := mustAcquire(t, q)
				p.Link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseReply: true, Silent: true} })
				ctx, leave := context.WithCancel(kit.Within(t, time.Minute))
				left := make(chan error, 1)
				go func() { left <- h.Release(ctx) }() // received below
				time.Sleep(kit.OneWay + time.Millisecond)
				if len(kit.Standing(srv, "x")) != 0 {
					t.Fatal("the entry stands")
				}
				p.Link.Plan(nil)
				var next <-chan result
				if nextInLine {
					next = acquireLater(kit.Within(t, time.Minute), q)
					time.Sleep(time.Millisecond)
				}
				leave()
				if err := <-left; !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
					t.Errorf("Unlock: %v", err)
				}
				if err := h.Release(kit.Within(t, time.Minute)); err != nil {
					t.Errorf("Unlock, asked again: %v", err)
				}
				if nextInLine {
					unacquireAll(t, srv, mustHold(t, srv, []<-chan result{next}))
				}
				kit.NothingStands(t, srv)
			})
		})
	}
}

// Unlock waits for no answer about a lease that is lost: with that the lock is gone.
func TestUnlockThatIsNotAnsweredEndsWithTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		p.Link.BlackHole()
		const before = time.Second // less than an attempt may take
		time.Sleep(p.Sess.Remaining() - before)
		began := time.Now()
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Unlock: %v", err)
		}
		if took := time.Since(began); took > before+time.Millisecond {
			t.Errorf("Unlock took %v, and the lease was lost after %v", took, before)
		}
	})
}

// etcd tells the rest of a lease in whole seconds, rounded down: a lease of one
// second that lives has 0 left, one that is gone -1. With the entry of one lock
// the others must not be lost.
func TestEntryDeletedOnALeaseOfOneSecondIsNoLossOfTheLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(&etcdfake.Options{MinTTL: time.Second})
		t.Cleanup(srv.Close)
		p := start(t, srv, func(o *session.Options) { o.TTL, o.DriftMargin = time.Second, 0 })
		deleted, other := mustAcquire(t, p.queue("deleted")), mustAcquire(t, p.queue("other"))
		time.Sleep(3 * time.Second)
		srv.Delete(deleted.Key())
		<-deleted.Done()
		var lost *holdfast.LostError
		if err := deleted.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
			t.Errorf("the lock whose entry was deleted: %v", err)
		}
		if err := other.Check(); err != nil {
			t.Errorf("the other lock: %v", err)
		}
	})
}

// Scenario 5, to the moment. A release that etcd does not answer returns at its
// deadline; the lease is renewed as soon as etcd is back, but not for the entry,
// which goes within one pause between two attempts.
func TestUnansweredReleaseIsFinishedAsSoonAsEtcdIsBack(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		waiter := acquireLater(t.Context(), b.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		a.Link.Cut()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, holdfast.ErrOutcomeUnknown) || time.Since(begin) != 2*time.Second {
			t.Errorf("Unlock after %v: %v", time.Since(begin), err)
		}
		time.Sleep(8 * time.Second)
		if kvs := kit.Standing(srv, "x"); len(kvs) != 2 {
			t.Fatalf("entries %v: the connection is not cut", kvs)
		}
		lease := a.Sess.Lease()
		a.Heal()
		back := time.Now()
		if r := <-waiter; r.err != nil || time.Since(back) > time.Second+10*kit.OneWay {
			t.Errorf("the waiter after %v: %v", time.Since(back), r.err)
		}
		time.Sleep(time.Second)
		if a.Sess.Check() != nil || a.Sess.Lease() != lease {
			t.Errorf("the session: %v, lease %x (was %x)", a.Sess.Check(), a.Sess.Lease(), lease)
		}
	})
}
