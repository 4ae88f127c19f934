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

// These tests put one event at every moment of a short exchange: a bubble for
// each. A step is less than a message takes, so that between any two messages
// there are several.
const step = kit.OneWay / 2

// atEveryMoment runs a test for each offset from a start to an end: between
// messages, and a few times at the very instant at which one arrives, when Go
// decides who is first.
func atEveryMoment(t *testing.T, from, to time.Duration, f func(t *testing.T, srv *etcdfake.Server, offset time.Duration)) {
	t.Helper()
	for at := from; at <= to; at += step {
		for _, offset := range []time.Duration{at + 17*time.Microsecond, at, at, at} {
			t.Run(fmt.Sprint(offset), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) { f(t, srv, offset) })
			})
		}
	}
}

// Scenario 9. A waiter's context is cancelled at any moment around its grant:
// it is told of an error and has no entry, then or later, or it holds.
func TestWaiterCancelledAsItIsGrantedHoldsOrLeavesNothing(t *testing.T) {
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
			granted, cancelled := 0, 0
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
					cancelled++
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
			if granted == 0 || cancelled == 0 {
				t.Errorf("granted %d times, cancelled %d times: the moments are not around the grant", granted, cancelled)
			}
		})
	}
}

// Scenarios 17 and 18. A waiter's lease ends at any moment around the one at
// which its predecessor leaves: it is granted only an entry that a read has
// seen afterwards, on a lease that it was not told is lost.
func TestWaiterWhoseLeaseEndsAsItsPredecessorLeavesHoldsOnlyWhatStood(t *testing.T) {
	sameLease, nextLease := 0, 0
	atEveryMoment(t, -8*kit.OneWay, 12*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		old := b.Sess.Lease()
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		time.Sleep(time.Second)
		begin := time.Now()
		go func() { // both end before the bubble does
			time.Sleep(20 * kit.OneWay)
			mustRelease(t, h)
		}()
		time.Sleep(time.Until(begin.Add(20*kit.OneWay + offset)))
		srv.Revoke(old)
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		left, ended := int64(0), int64(0) // the revisions at which the predecessor's entry and the granted one ended
		for _, c := range srv.History(entriesX) {
			switch {
			case c.Deleted && string(c.Kv.Key) == h.Key():
				left = c.Revision
			case c.Deleted && string(c.Kv.Key) == r.h.Key():
				ended = c.Revision
			}
		}
		if left == 0 || ended != 0 && ended < left {
			t.Errorf("the predecessor left at revision %d, the granted entry was gone at %d", left, ended)
		}
		if r.h.Lease() != old {
			nextLease++
			if r.h.Check() != nil || !isFirst(srv, r.h) {
				t.Errorf("on the next lease: Check %v, entries %v", r.h.Check(), kit.Standing(srv, "x"))
			}
			return
		}
		sameLease++ // revoked behind the read: it is told within 2 s
		select {
		case <-r.h.Done():
		case <-time.After(2 * time.Second):
			t.Errorf("not told within 2 s that its entry is gone")
		}
	})
	if sameLease == 0 || nextLease == 0 {
		t.Errorf("granted %d times before the lease ended, %d times on the next: the moments are not around the grant", sameLease, nextLease)
	}
}

// unrenewed is a connection on which renewals vanish and all else works.
func unrenewed(c etcdfake.Call) etcdfake.Fate {
	return etcdfake.Fate{LoseRequest: c.Method == "LeaseKeepAlive", Silent: true}
}

// A waiter whose lease cannot be proved to live is at the front like any other;
// it must not be told that it holds what it may be about to lose.
func TestWaiterAtTheFrontIsNotGrantedWhileItsLeaseIsSuspended(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		b.Link.Plan(unrenewed)
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		time.Sleep(8 * time.Second)
		if err := b.Sess.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatalf("the waiter's session: %v, want suspended", err)
		}
		if err := h.Release(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if kvs := kit.Standing(srv, "x"); len(kvs) != 1 || kvs[0].Lease != int64(b.Sess.Lease()) {
			t.Fatalf("entries %v, want the waiter's at the front", kvs)
		}
		select {
		case r := <-waiter:
			t.Fatalf("granted while suspended: %v, Check %v", r.err, r.h.Check())
		default:
		}
		lease := b.Sess.Lease()
		b.Heal()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.h.Check() != nil || r.h.Lease() != lease || !isFirst(srv, r.h) {
			t.Errorf("once renewed: Check %v, lease %x (was %x), entries %v", r.h.Check(), r.h.Lease(), lease, kit.Standing(srv, "x"))
		}
	})
}

// The same waiter, when its lease does not come back: it is not granted on the
// dead one, although its entry is at the front, but queues again.
func TestWaiterAtTheFrontWhoseSuspensionEndsInALossQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		h := mustAcquire(t, a.queue("x"))
		b.Link.Plan(unrenewed)
		old := b.Sess.Lease()
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		time.Sleep(8 * time.Second)
		if err := h.Release(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		front := kit.Standing(srv, "x")[0].CreateRevision
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.h.Lease() == old || int64(r.h.Token()) <= front || r.h.Check() != nil || !isFirst(srv, r.h) {
			t.Errorf("lease %x (was %x), token %v (was %d), Check %v, entries %v", r.h.Lease(), old, r.h.Token(), front, r.h.Check(), kit.Standing(srv, "x"))
		}
	})
}

// The same waiter, when somebody deletes its entry during the suspension: what
// it had seen before is not what stands when it is granted.
func TestWaiterWhoseEntryIsDeletedWhileSuspendedAtTheFrontQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		b := start(t, srv)
		b.Link.Plan(unrenewed)
		time.Sleep(8 * time.Second)
		waiter := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		kit.Queued(t, srv, entriesX, 1)
		deleted := kit.Standing(srv, "x")[0]
		srv.Delete(string(deleted.Key))
		b.Heal()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if int64(r.h.Token()) <= deleted.CreateRevision || !isFirst(srv, r.h) {
			t.Errorf("token %v after the deletion of %d, entries %v", r.h.Token(), deleted.CreateRevision, kit.Standing(srv, "x"))
		}
	})
}

// Scenario 17. A waiter is cut off until its lease is gone: whatever the holder
// does meanwhile, it is granted nothing on that lease.
func TestWaiterCutOffPastItsTTLIsNeverGrantedOnTheDeadLease(t *testing.T) {
	for name, leaves := range map[string]time.Duration{
		"the holder leaves at once":                       2 * time.Second,
		"the holder leaves when the waiter is suspended":  10 * time.Second,
		"the holder leaves when the waiter is lost":       14 * time.Second,
		"the holder leaves when etcd has let go":          20 * time.Second,
		"the holder leaves after the waiter has returned": 40 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := start(t, srv), start(t, srv)
				h := mustAcquire(t, a.queue("x"))
				old := b.Sess.Lease()
				waiter := acquireLater(t.Context(), b.queue("x"))
				kit.Queued(t, srv, entriesX, 2)
				begin := time.Now()
				at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
				b.Link.BlackHole()
				left := make(chan struct{})
				go func() { // received below
					defer close(left)
					at(leaves)
					mustRelease(t, h)
				}()
				at(30 * time.Second)
				select {
				case r := <-waiter:
					t.Fatalf("returned while cut off: %+v", r)
				default:
				}
				b.Heal()
				if leaves > 30*time.Second { // it has queued again, and not waited for the holder first
					kit.Queued(t, srv, entriesX, 2)
				}
				r := <-waiter
				<-left
				if r.err != nil {
					t.Fatal(r.err)
				}
				if r.h.Lease() == old || r.h.Check() != nil || !isFirst(srv, r.h) {
					t.Errorf("lease %x (was %x), Check %v, entries %v", r.h.Lease(), old, r.h.Check(), kit.Standing(srv, "x"))
				}
			})
		})
	}
}

// Scenario 8. A waiter gives up: its entry goes, those behind it keep their
// order. Cut off, it returns after the quarter of a second it waits for its removal,
// and is removed when it can be.
func TestWaiterThatGivesUpLeavesTheOthersInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		cut     bool
		returns time.Duration
	}{
		"reachable": {false, 2 * kit.OneWay},
		"cut off":   {true, 250 * time.Millisecond},
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

// A job that skips when the lock is taken must hear of it when nobody holds it.
func TestTryLockTellsAnEntryOfItsOwnSessionFromALock(t *testing.T) {
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

func TestTryLockTellsAnEntryThatIsLeftOverFromALock(t *testing.T) {
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

// Whether another client holds or etcd does not answer is what the timeout says.
func TestTimeoutOfLockSaysWhatItWaitedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		expect := func(q *Queue, want ...string) {
			t.Helper()
			_, err := q.Acquire(kit.Within(t, 100*time.Millisecond), Request{})
			for _, text := range want {
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), text) {
					t.Errorf("%v lacks %q", err, text)
				}
			}
		}
		theirs := mustAcquireAs(t, other.queue("x"), Request{Owner: "worker 7"})
		q := p.queue("x")
		expect(q, "queued behind entry", theirs.Key(), "worker 7")
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
