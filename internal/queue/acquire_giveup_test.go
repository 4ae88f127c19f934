package queue_test

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
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
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
		"cut off":   {true, queue.GiveUpWait},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var procs []*holdtest.Process
				var waiters []<-chan holdtest.Result
				ctx, cancel := context.WithCancel(t.Context())
				for i := range 4 {
					p := holdtest.Start(t, srv)
					lctx := t.Context()
					if i == 1 {
						lctx = ctx
					}
					procs = append(procs, p)
					waiters = append(waiters, holdtest.AcquireLater(lctx, p.Queue("x")))
					kit.Queued(t, srv, holdtest.EntriesX, i+1)
				}
				first := <-waiters[0]
				if first.Err != nil {
					t.Fatal(first.Err)
				}
				before := kit.Standing(srv, "x")
				if c.cut {
					procs[1].Link.BlackHole()
				}
				start := time.Now()
				cancel()
				if r := <-waiters[1]; !errors.Is(r.Err, context.Canceled) || time.Since(start) != c.returns {
					t.Errorf("after %v: %v, want an error after %v", time.Since(start), r.Err, c.returns)
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
				holdtest.MustRelease(t, first.H)
				third := <-waiters[2]
				if third.Err != nil || !holdtest.IsFirst(srv, third.H) {
					t.Fatalf("the third: %+v", third)
				}
				holdtest.MustRelease(t, third.H)
				if r := <-waiters[3]; r.Err != nil || r.H.Token() <= third.H.Token() {
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
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		expect := func(q *queue.Queue, want string) {
			t.Helper()
			_, err := hold.Acquire(kit.Within(t, 100*time.Millisecond), q, hold.Request{})
			place, err := queue.Without(err)
			text := fmt.Sprint(err, "; ", place)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(text, want) {
				t.Errorf("%v lacks %q", text, want)
			}
		}
		theirs := holdtest.MustAcquireAs(t, other.Queue("x"), hold.Request{Request: queue.Request{Owner: "worker 7"}})
		q := p.Queue("x")
		expect(q, "; held by owner \"worker 7\"")
		own := holdtest.MustAcquire(t, p.Queue("y"))
		expect(p.Queue("y"), "behind a goroutine of this session, perhaps this one")
		p.Link.BlackHole()
		expect(q, "etcd has not answered")
		p.Heal()
		holdtest.MustRelease(t, own)
		holdtest.MustRelease(t, theirs)
	})
}

// Close ends every call, whatever it waits for and however long its context lives.
func TestCloseEndsCallsWhileEtcdIsAway(t *testing.T) {
	for name, tc := range map[string]struct {
		call  func(context.Context, *queue.Queue) error
		retry backoff.Policy
		after time.Duration
	}{
		"TryAcquire, reading": {
			func(ctx context.Context, q *queue.Queue) error {
				_, err := holdtest.TryAcquire(ctx, q)
				return err
			},
			backoff.Policy{}, time.Second,
		},
		"Acquire, between two attempts": { // its lease was lost after 13.5 s
			func(ctx context.Context, q *queue.Queue) error {
				_, err := hold.Acquire(ctx, q, hold.Request{})
				return err
			},
			backoff.Policy{Initial: time.Minute, Max: time.Minute, Rand: func() float64 { return 1 }}, 15 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv, func(o *session.Options) { o.Retry = tc.retry })
				p.Link.BlackHole()
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- tc.call(ctx, p.Queue("x")) }() // ends with ctx
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
		p, behind := holdtest.Start(t, srv), holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := holdtest.AcquireLater(ctx, p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		last := holdtest.AcquireLater(kit.Within(t, time.Minute), behind.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		began := time.Now()
		giveUp()
		if r := <-waiter; !errors.Is(r.Err, context.Canceled) || r.At.Sub(began) > 2*kit.OneWay {
			t.Errorf("gave up after %v: %v", r.At.Sub(began), r.Err)
		}
		if keys := kit.KeysOf(srv.Keys(holdtest.EntriesX)); len(keys) != 2 {
			t.Errorf("in the queue: %v", keys)
		}
		ahead.Release()
		holdtest.Delayed(t, holdtest.Granted(t, srv, last), srv, ahead.Key, false)
	})
}

// giveUpAfterRevocation revokes the entry ahead of a waiter, has the waiter give up after some
// time, and checks that the next waiter is granted a lock delay after that: until then nothing has told it of the
// revocation. With next, another goroutine of the waiter's session waits in the line.
func giveUpAfterRevocation(t *testing.T, unheard bool, after time.Duration, next bool) {
	t.Helper()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, behind := holdtest.Start(t, srv), holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := holdtest.AcquireLater(ctx, p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		last := holdtest.AcquireLater(kit.Within(t, time.Minute), behind.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		var second <-chan holdtest.Result
		if next {
			second = holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
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
		if r := <-waiter; !errors.Is(r.Err, context.Canceled) {
			t.Fatalf("the waiter: %v", r.Err)
		}
		r := holdtest.Granted(t, srv, last)
		if took := r.At.Sub(revoked); took < after+kit.LockDelay || took > after+kit.LockDelay+kit.Prompt {
			t.Errorf("the next waiter was granted %v after the revocation, want a lock delay after the other left", took)
		}
		holdtest.MustRelease(t, r.H)
		if next {
			holdtest.MustRelease(t, holdtest.Granted(t, srv, second).H)
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
