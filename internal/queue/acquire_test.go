package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// atEveryMoment runs a test for each offset from a start to an end: several times at the instant at which a message
// arrives, when Go decides which of the two is first, and once between messages. Messages that begin at a multiple of
// OneWay arrive at one, so that all offsets between two of them are one case.
func atEveryMoment(
	t *testing.T, from, to time.Duration, f func(t *testing.T, srv *etcdfake.Server, offset time.Duration),
) {
	t.Helper()
	for at := from; at <= to; at += kit.OneWay {
		for _, offset := range []time.Duration{at, at, at, at + kit.OneWay/2} {
			t.Run(fmt.Sprint(offset), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) { f(t, srv, offset) })
			})
		}
	}
}

// Scenario 9. A waiter's context is canceled at any moment around its grant: it gets an
// error and has no entry, then or later, or it holds.
func TestWaiterCanceledAsItIsGrantedHoldsOrLeavesNothing(t *testing.T) {
	for name, waiting := range map[string]func(t *testing.T, srv *etcdfake.Server, a, b *process) (release func()){
		"the lock is free": func(*testing.T, *etcdfake.Server, *process, *process) func() { return func() {} },
		"behind another process": func(t *testing.T, _ *etcdfake.Server, a, _ *process) func() {
			h := mustAcquire(t, a.queue("x"))
			return func() { mustRelease(t, h) }
		},
		"behind its own process": func(t *testing.T, _ *etcdfake.Server, _, b *process) func() {
			h := mustAcquire(t, b.queue("x"))
			return func() { mustRelease(t, h) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			granted, canceled := 0, 0
			atEveryMoment(t, 0, 12*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
				a, b := start(t, srv), start(t, srv)
				release := waiting(t, srv, a, b)
				ctx, cancel := context.WithCancel(t.Context())
				waiter := acquireLater(ctx, b.queue("x"))
				if name != "the lock is free" {
					time.Sleep(time.Second)
					go release() // ends before the bubble does
				}
				time.Sleep(offset)
				cancel()
				r := <-waiter
				if r.err == nil {
					granted++
					if r.h.Check() != nil || !isFirst(srv, r.h) {
						t.Errorf("success: Check %v, entries %v", r.h.Check(), kit.Standing(srv, "x"))
					}
					mustRelease(t, r.h)
				} else {
					canceled++
					if !errors.Is(r.err, context.Canceled) {
						t.Error(r.err)
					}
				}
				time.Sleep(time.Second)
				if left := kit.Standing(srv, "x"); len(left) != 0 {
					t.Errorf("returned %v, and left %v", r.err, left)
				}
				time.Sleep(time.Minute)
				for _, c := range srv.History(entriesX) {
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
