package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
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

// Scenario 8. A waiter gives up: its entry is removed, and those behind it keep their
// order. If it is cut off, it returns after giveUpWait, and its entry is removed later.
func TestWaiterThatGivesUpLeavesTheOthersInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		cut     bool
		returns time.Duration
	}{
		"reachable": {false, 2 * kit.OneWay},
		"cut off":   {true, giveUpWait},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var procs []*process
				var waiters []<-chan result
				ctx, cancel := context.WithCancel(t.Context())
				for i := range 4 {
					p := start(t, srv)
					lctx := t.Context()
					if i == 1 {
						lctx = ctx
					}
					procs = append(procs, p)
					waiters = append(waiters, acquireLater(lctx, p.queue("x")))
					kit.Queued(t, srv, entriesX, i+1)
				}
				first := <-waiters[0]
				if first.err != nil {
					t.Fatal(first.err)
				}
				before := kit.Standing(srv, "x")
				if c.cut {
					procs[1].Link.BlackHole()
				}
				start := time.Now()
				cancel()
				if r := <-waiters[1]; !errors.Is(r.err, context.Canceled) || time.Since(start) != c.returns {
					t.Errorf("after %v: %v, want an error after %v", time.Since(start), r.err, c.returns)
				}
				procs[1].Heal()
				time.Sleep(time.Second)
				var left, want []string
				for _, kv := range kit.Standing(srv, "x") {
					left = append(left, string(kv.Key))
				}
				for _, kv := range slices.Delete(before, 1, 2) {
					want = append(want, string(kv.Key))
				}
				if !slices.Equal(left, want) {
					t.Errorf("entries %v, want %v", left, want)
				}
				mustRelease(t, first.h)
				third := <-waiters[2]
				if third.err != nil || !isFirst(srv, third.h) {
					t.Fatalf("the third: %+v", third)
				}
				mustRelease(t, third.h)
				if r := <-waiters[3]; r.err != nil || r.h.Token() <= third.h.Token() {
					t.Errorf("the fourth: %+v", r)
				}
			})
		})
	}
}

// A job that is skipped when the lock is taken must be told when no client holds it.
func TestTryAcquireTellsOwnUnconfirmedEntriesFromALock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		q := p.queue("x")
		expect := func(when string, want error) {
			t.Helper()
			if _, err := q.TryAcquire(kit.Within(t, time.Minute), Request{}); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
		}
		h := mustAcquire(t, q)
		expect("held by this session", ErrOccupied)
		p.Link.BlackHole()
		if err := h.Release(kit.Within(t, 50*time.Millisecond)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		expect("after an Unlock that was not answered", ErrUnconfirmed)
		p.Heal()
		time.Sleep(5 * time.Second)
		theirs := mustAcquire(t, other.queue("x"))
		expect("held by another session", ErrOccupied)

		ctx, giveUp := context.WithCancel(t.Context())
		waiter := acquireLater(ctx, q)
		kit.Queued(t, srv, entriesX, 2)
		expect("waited for by this session", ErrOccupied)
		p.Link.BlackHole()
		giveUp()
		<-waiter
		expect("after a Lock that gave up", ErrUnconfirmed)
		p.Heal()
		time.Sleep(5 * time.Second)
		mustRelease(t, theirs)
		mustRelease(t, mustAcquire(t, q))
	})
}

func TestTryAcquireTellsALeftoverEntryFromALock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("other"))
		mustRelease(t, h)
		left := strings.Replace(h.Key(), "/other/", "/x/", 1)
		srv.Put(left, "")
		if _, err := p.queue("x").TryAcquire(kit.Within(t, time.Minute), Request{}); !errors.Is(err, ErrUnconfirmed) {
			t.Errorf("TryLock: %v", err)
		}
		srv.Delete(left)
	})
}

// The error of a timeout tells a lock that another client holds from an etcd that does
// not answer.
func TestTimeoutSaysWhatTheCallWaitedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		expect := func(q *Queue, want string) {
			t.Helper()
			_, err := q.Acquire(kit.Within(t, 100*time.Millisecond), Request{})
			place, err := WithoutPlace(err)
			text := fmt.Sprint(err, "; ", place)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(text, want) {
				t.Errorf("%v lacks %q", text, want)
			}
		}
		theirs := mustAcquireAs(t, other.queue("x"), Request{Owner: "worker 7"})
		q := p.queue("x")
		expect(q, "; held by owner \"worker 7\"")
		own := mustAcquire(t, p.queue("y"))
		expect(p.queue("y"), "behind another goroutine of this session")
		p.Link.BlackHole()
		expect(q, "etcd has not answered")
		p.Heal()
		mustRelease(t, own)
		mustRelease(t, theirs)
	})
}

// Close ends every call, whatever it waits for and however long its context lives.
func TestCloseEndsCallsWhileEtcdIsAway(t *testing.T) {
	for name, tc := range map[string]struct {
		call  func(context.Context, *Queue) error
		retry backoff.Policy
		after time.Duration
	}{
		"TryAcquire, reading": {
			func(ctx context.Context, q *Queue) error { _, err := q.TryAcquire(ctx, Request{}); return err },
			backoff.Policy{}, time.Second,
		},
		"Acquire, between two attempts": { // its lease was lost after 13.5 s
			func(ctx context.Context, q *Queue) error { _, err := q.Acquire(ctx, Request{}); return err },
			backoff.Policy{Initial: time.Minute, Max: time.Minute, Rand: func() float64 { return 1 }}, 15 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv, func(o *session.Options) { o.Retry = tc.retry })
				p.Link.BlackHole()
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- tc.call(ctx, p.queue("x")) }() // ends with ctx
				time.Sleep(tc.after)
				if err := p.Sess.Close(kit.Within(t, time.Second)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
					t.Errorf("Close: %v", err)
				}
				select {
				case err := <-done:
					if !errors.Is(err, holdfast.ErrClosed) {
						t.Error(err)
					}
				case <-time.After(time.Second):
					t.Error("the call goes on")
					cancel()
					<-done
				}
			})
		})
	}
}
