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

func TestWaiterThatGivesUpBehindAnEntryIsRemovedAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, behind := start(t, srv), start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		last := acquireLater(kit.Within(t, time.Minute), behind.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
		began := time.Now()
		giveUp()
		if r := <-waiter; !errors.Is(r.err, context.Canceled) || r.at.Sub(began) > 2*kit.OneWay {
			t.Errorf("gave up after %v: %v", r.at.Sub(began), r.err)
		}
		if keys := kit.KeysOf(srv.Keys(entriesX)); len(keys) != 2 {
			t.Errorf("in the queue: %v", keys)
		}
		ahead.Release()
		delayed(t, granted(t, srv, last), srv, ahead.Key, false)
	})
}

// giveUpAfterRevocation revokes the entry ahead of a waiter, has the waiter give up after some
// time, and checks that the next waiter is granted no earlier than a lock delay after the
// revocation. With next, another goroutine of the waiter's session waits in the line.
func giveUpAfterRevocation(t *testing.T, unheard bool, after time.Duration, next bool) {
	t.Helper()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, behind := start(t, srv), start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		last := acquireLater(kit.Within(t, time.Minute), behind.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
		var second <-chan result
		if next {
			second = acquireLater(kit.Within(t, time.Minute), p.queue("x"))
			time.Sleep(kit.OneWay)
		}
		p.Plan(func(kind string, _ int) etcdfake.Fate {
			if unheard && kind == "event" {
				return etcdfake.Fate{Reply: time.Minute}
			}
			return etcdfake.Fate{}
		})
		ahead.Revoke()
		revoked := time.Now()
		time.Sleep(after)
		giveUp()
		if r := <-waiter; !errors.Is(r.err, context.Canceled) {
			t.Fatalf("the waiter: %v", r.err)
		}
		r := granted(t, srv, last)
		if took := r.at.Sub(revoked); took < kit.LockDelay || took > kit.LockDelay+kit.Prompt {
			t.Errorf("the next waiter was granted %v after the revocation, want a lock delay", took)
		}
		mustRelease(t, r.h)
		if next {
			mustRelease(t, granted(t, srv, second).h)
		}
		kit.NothingStands(t, srv)
	})
}

// The next waiter sees how this one's entry goes, not the revocation ahead of it.
func TestWaiterBehindOneThatGivesUpAfterARevocationIsDelayed(t *testing.T) {
	for name, next := range map[string]bool{"leaves": false, "hands off": true} {
		t.Run(name+" without having heard of it", func(t *testing.T) { giveUpAfterRevocation(t, true, 0, next) })
		t.Run(name+" during its lock delay", func(t *testing.T) { giveUpAfterRevocation(t, false, kit.LockDelay/2, next) })
	}
}
