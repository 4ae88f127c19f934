package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

const maxIdle = 5 * time.Second

func isIdle(err error) bool {
	var lost *holdfast.LostError
	return errors.As(err, &lost) && lost.Cause == holdfast.CauseIdle
}

func TestHoldWhoseWorkIsStuckIsLostAfterMaxIdle(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquireAs(t, a.queue("x"), Request{MaxIdle: maxIdle})
		next := acquireLater(kit.Within(t, time.Hour), b.queue("x"))
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
		r := granted(t, srv, next)
		delayed(t, r, srv, h.Key(), false)
		if err := h.Release(t.Context()); !isIdle(err) {
			t.Errorf("Release: %v", err)
		}
	})
}

// No timer of a process that was stopped has fired, nor that of a machine that slept.
func TestIdleWorkIsToldAtOnceAfterAPause(t *testing.T) {
	for name, judge := range map[string]func(h *Hold) error{
		"Check": (*Hold).Check, "Progress": (*Hold).Progress,
		"a context": func(h *Hold) error {
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
				p := start(t, srv)
				h := mustAcquireAs(t, p.queue("x"), Request{MaxIdle: maxIdle})
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
		p := start(t, srv)
		for _, most := range []time.Duration{0, time.Minute} {
			h := mustAcquireAs(t, p.queue("x"), Request{MaxIdle: most})
			if err := h.Progress(); err != nil {
				t.Errorf("while held: %v", err)
			}
			mustRelease(t, h)
			if err := h.Progress(); err != holdfast.ErrReleased {
				t.Errorf("after the release: %v", err)
			}
		}
		h := mustAcquireAs(t, p.queue("x"), Request{MaxIdle: time.Minute})
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
		p := start(t, srv)
		h := mustAcquireAs(t, p.queue("x"), Request{MaxIdle: maxIdle})
		p.Suspend(kit.Trust)
		var lost *holdfast.LostError
		if err := h.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
			t.Errorf("%v", err)
		}
	})
}

// While one goroutine finds the work idle, another one that had looked at the clock in time records its progress.
func TestProgressThatAnotherGoroutineHasRecordedCounts(t *testing.T) {
	t.Parallel()
	for name, progressed := range map[string]bool{"in time": true, "not": false} {
		i := &idle{most: time.Second}
		reads := 0
		i.clock = func() time.Duration {
			if reads++; reads == 2 && progressed {
				i.last.Store(int64(time.Second - 1))
			}
			return time.Second
		}
		if got := i.progress(); got != progressed {
			t.Errorf("%s: %v", name, got)
		}
	}
}
