package hold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

const maxIdle = 5 * time.Second

func isIdle(err error) bool {
	var lost *holdfast.LostError
	return errors.As(err, &lost) && lost.Cause == holdfast.CauseIdle
}

func TestHoldWhoseWorkIsStuckIsLostAfterMaxIdle(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquireAs(t, a.Queue("x"), hold.Request{MaxIdle: maxIdle})
		next := holdtest.AcquireLater(kit.Within(t, time.Hour), b.Queue("x"))
		const each = maxIdle - time.Nanosecond
		for range 100 {
			time.Sleep(each)
			if err := h.Progress(); err != nil {
				t.Fatal(err)
			}
		}
		progressed := time.Now()
		select {
		case <-h.Done():
		case <-time.After(time.Minute):
		}
		if idled := time.Since(progressed); idled != maxIdle || !isIdle(h.Check()) || !isIdle(h.Progress()) {
			t.Errorf("after %v: Check %v, Progress %v", idled, h.Check(), h.Progress())
		}
		if !isIdle(h.Check()) {
			_ = h.Release(t.Context())
		}
		r := holdtest.Granted(t, srv, next)
		holdtest.Delayed(t, r, srv, h.Key(), false)
		if err := h.Release(t.Context()); !isIdle(err) {
			t.Errorf("Release: %v", err)
		}
	})
}

// No timer of a process that was stopped has fired, nor that of a machine that slept.
func TestIdleWorkIsToldAtOnceAfterAPause(t *testing.T) {
	for name, judge := range map[string]func(h *hold.Hold) error{
		"Check": (*hold.Hold).Check, "Progress": (*hold.Hold).Progress,
		"a context": func(h *hold.Hold) error {
			ctx, cancel := h.Context(context.Background(), false)
			defer cancel()
			select {
			case <-ctx.Done():
			case <-time.After(kit.Prompt):
				return nil
			}
			return h.Check()
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{MaxIdle: maxIdle})
				p.Suspend(maxIdle - time.Nanosecond)
				if err := h.Progress(); err != nil {
					t.Fatal(err)
				}
				p.Suspend(maxIdle)
				if err := judge(h); !isIdle(err) {
					t.Errorf("%v", err)
				}
				if h.Progress(); !isIdle(h.Check()) {
					t.Error("progress after the end brought the hold back")
				}
			})
		})
	}
}

func TestProgressAfterTheEndSaysWhy(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		for _, most := range []time.Duration{0, time.Minute} {
			h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{MaxIdle: most})
			if err := h.Progress(); err != nil {
				t.Errorf("while held: %v", err)
			}
			holdtest.MustRelease(t, h)
			if err := h.Progress(); err != holdfast.ErrReleased {
				t.Errorf("after the release: %v", err)
			}
		}
		h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{MaxIdle: time.Minute})
		srv.Revoke(h.Lease())
		<-h.Done()
		if err := h.Progress(); !errors.Is(err, holdfast.ErrLost) || isIdle(err) {
			t.Errorf("after a loss: %v", err)
		}
	})
}

// A lease that expired in the same pause is the greater loss.
func TestExpiredLeaseIsReportedBeforeIdleWork(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{MaxIdle: maxIdle})
		p.Suspend(kit.Trust)
		var lost *holdfast.LostError
		if err := h.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
			t.Errorf("%v", err)
		}
	})
}
