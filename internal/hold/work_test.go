package hold_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// What nothing asked for starts no goroutine and no timer, and allocates nothing: there is no Work.
func TestWorkThatNothingWatchesCostsNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		allocated := testing.AllocsPerRun(1000, func() {
			w := hold.NewWork(h, nil, nil, false)
			w.Overrun(holdfast.CauseNotDrained, time.Time{})
			if w.End(); w != nil {
				t.Fatal("there is a Work")
			}
		})
		if allocated != 0 {
			t.Errorf("it allocates %v times", allocated)
		}
		holdtest.MustRelease(t, h)
	})
}

// told is a call of OnOverrun.
type told struct {
	cause holdfast.Cause
	since time.Time
	at    time.Time
}

// startWork returns the work of a function under a hold, and what it tells.
func startWork(h *hold.Hold, strict bool) (*hold.Work, <-chan told) {
	tells := make(chan told, 2)
	w := hold.NewWork(h, nil, func(lost *holdfast.LostError, since time.Time) {
		tells <- told{lost.Cause, since, time.Now()}
	}, strict)
	return w, tells
}

// Work is told a grace after the loss, and since when its hold is lost: at the latest half of what the next holder
// waits for. It has had its time if its context has ended when the session was suspended, and the lease expires.
func TestWorkIsToldAGraceAfterTheLoss(t *testing.T) {
	const grace, maxHold = min(kit.LockDelay, kit.Margin) / 2, 3 * time.Second
	for name, c := range map[string]struct {
		end    func(srv *etcdfake.Server, p *holdtest.Process, h *hold.Hold)
		strict bool
		grace  time.Duration
	}{
		"deleted":         {func(_ *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) { h.EndStale() }, false, grace},
		"deleted, strict": {func(_ *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) { h.EndStale() }, true, grace},
		"MaxHold":         {func(*etcdfake.Server, *holdtest.Process, *hold.Hold) { time.Sleep(maxHold) }, false, grace},
		"kicked": {func(srv *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			holdtest.Notify(t, srv, srv.Keys(h.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
			<-h.Done()
		}, false, 30*time.Second + grace},
		"expired": {func(_ *etcdfake.Server, p *holdtest.Process, h *hold.Hold) {
			p.Link.BlackHole()
			<-h.Done()
		}, false, grace},
		"expired, strict": {func(_ *etcdfake.Server, p *holdtest.Process, h *hold.Hold) {
			p.Link.BlackHole()
			<-h.Done()
		}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				r := hold.Request{}
				if name == "MaxHold" {
					r.MaxHold = maxHold
				}
				h := holdtest.MustAcquireAs(t, p.Queue("x"), r)
				w, tells := startWork(h, c.strict)
				c.end(srv, p, h)
				synctest.Wait()
				lost := time.Now()
				if h.Check() == nil {
					t.Fatal("it is not lost")
				}
				got := <-tells
				if !got.since.Equal(lost) || got.at.Sub(lost) != c.grace {
					t.Errorf("told %v after the loss, want %v, as since %v after it", got.at.Sub(lost), c.grace, got.since.Sub(lost))
				}
				w.End()
				p.Heal()
			})
		})
	}
}

// Work that has ended leaves nothing with its hold, and is not told of what comes later.
func TestWorkThatHasEndedIsToldNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		w, tells := startWork(h, false)
		w.End()
		synctest.Wait() // what watches the hold must not take this for its end
		if n := h.Contexts(); n != 0 {
			t.Errorf("the hold knows %d contexts", n)
		}
		w.Overrun(holdfast.CauseNotDrained, time.Now())
		hold.Overrun(w, new(holdfast.LostError), time.Now()) // what saw the function go on comes late
		h.EndStale()
		time.Sleep(time.Second)
		if len(tells) != 0 {
			t.Errorf("told %v", <-tells)
		}
	})
}

// A function whose program has released the hold, be it after a loss, goes on with something else.
func TestWorkWhoseHoldIsReleasedIsToldNothing(t *testing.T) {
	for name, lost := range map[string]bool{"held": false, "lost": true} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
			w, tells := startWork(h, false)
			if lost {
				h.EndStale()
			}
			_ = h.Release(t.Context())
			w.Overrun(holdfast.CauseNotDrained, time.Now())
			time.Sleep(time.Minute)
			if len(tells) != 0 {
				t.Errorf("%s: told %v", name, <-tells)
			}
			w.End()
		})
	}
}

// The drain of a function is over. It is told of the loss to come, or of the one that has ended its hold before.
func TestWorkThatDoesNotDrainIsToldOnce(t *testing.T) {
	for _, cause := range []holdfast.Cause{holdfast.CauseNotDrained, holdfast.CauseEntryDeleted} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
			w, tells := startWork(h, false)
			if cause == holdfast.CauseEntryDeleted {
				h.EndStale()
			}
			since := time.Now()
			w.Overrun(holdfast.CauseNotDrained, since)
			h.EndStale()
			time.Sleep(time.Minute)
			if got := <-tells; got.cause != cause || !got.since.Equal(since) || !got.at.Equal(since) || len(tells) != 0 {
				t.Errorf("told %v, and %d times more; want %v", got, len(tells), cause)
			}
			w.End()
		})
	}
}
