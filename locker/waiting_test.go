package locker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

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
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := start(t, srv), start(t, srv)
				lk := mustLock(t, locker.NewMutex(a.sess, "x"))
				old := b.sess.Lease()
				waiter := lockLater(t.Context(), locker.NewMutex(b.sess, "x"))
				queued(t, srv, "x", 2)
				begin := time.Now()
				at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
				b.link.BlackHole()
				left := make(chan struct{})
				go func() { // received below
					defer close(left)
					at(leaves)
					mustUnlock(t, lk)
				}()
				at(30 * time.Second)
				select {
				case r := <-waiter:
					t.Fatalf("returned while cut off: %+v", r)
				default:
				}
				b.heal()
				if leaves > 30*time.Second { // it has queued again, and not waited for the holder first
					queued(t, srv, "x", 2)
				}
				r := <-waiter
				<-left
				if r.err != nil {
					t.Fatal(r.err)
				}
				if r.lk.Lease() == old || r.lk.Check() != nil || !owns(srv, r.lk) {
					t.Errorf("lease %x (was %x), Check %v, entries %v", r.lk.Lease(), old, r.lk.Check(), standing(srv, "x"))
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
		"reachable": {false, 2 * oneWay},
		"cut off":   {true, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
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
					waiters = append(waiters, lockLater(lctx, locker.NewMutex(p.sess, "x")))
					queued(t, srv, "x", i+1)
				}
				first := <-waiters[0]
				if first.err != nil {
					t.Fatal(first.err)
				}
				before := standing(srv, "x")
				if c.cut {
					procs[1].link.BlackHole()
				}
				start := time.Now()
				cancel()
				if r := <-waiters[1]; !errors.Is(r.err, context.Canceled) || time.Since(start) != c.returns {
					t.Errorf("after %v: %v, want an error after %v", time.Since(start), r.err, c.returns)
				}
				procs[1].heal()
				time.Sleep(time.Second)
				var left, want []string
				for _, kv := range standing(srv, "x") {
					left = append(left, string(kv.Key))
				}
				for _, kv := range slices.Delete(before, 1, 2) {
					want = append(want, string(kv.Key))
				}
				if !slices.Equal(left, want) {
					t.Errorf("entries %v, want %v", left, want)
				}
				mustUnlock(t, first.lk)
				third := <-waiters[2]
				if third.err != nil || !owns(srv, third.lk) {
					t.Fatalf("the third: %+v", third)
				}
				mustUnlock(t, third.lk)
				if r := <-waiters[3]; r.err != nil || r.lk.Token() <= third.lk.Token() {
					t.Errorf("the fourth: %+v", r)
				}
			})
		})
	}
}

// Scenario 5, to the moment. A release that etcd does not answer returns at its
// deadline; the lease is renewed as soon as etcd is back, but not for the entry,
// which goes within one pause between two attempts.
func TestUnansweredReleaseIsFinishedAsSoonAsEtcdIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.sess, "x"))
		waiter := lockLater(t.Context(), locker.NewMutex(b.sess, "x"))
		queued(t, srv, "x", 2)
		a.link.Cut()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := lk.Unlock(ctx); !errors.Is(err, holdfast.ErrOutcomeUnknown) || time.Since(begin) != 2*time.Second {
			t.Errorf("Unlock after %v: %v", time.Since(begin), err)
		}
		time.Sleep(8 * time.Second)
		if kvs := standing(srv, "x"); len(kvs) != 2 {
			t.Fatalf("entries %v: the connection is not cut", kvs)
		}
		lease := a.sess.Lease()
		a.heal()
		back := time.Now()
		if r := <-waiter; r.err != nil || time.Since(back) > time.Second+10*oneWay {
			t.Errorf("the waiter after %v: %v", time.Since(back), r.err)
		}
		time.Sleep(time.Second)
		if a.sess.Check() != nil || a.sess.Lease() != lease {
			t.Errorf("the session: %v, lease %x (was %x)", a.sess.Check(), a.sess.Lease(), lease)
		}
	})
}

// Scenario 12. Two processes that call themselves the same are two contenders.
func TestProcessesOfOneOwnerExcludeEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		same := locker.Options{Owner: "worker"}
		lk := mustLock(t, locker.NewMutex(a.sess, "x").With(same))
		waiter := lockLater(t.Context(), locker.NewMutex(b.sess, "x").With(same))
		queued(t, srv, "x", 2)
		time.Sleep(time.Hour)
		select {
		case r := <-waiter:
			t.Fatalf("a second owner: %+v", r)
		default:
		}
		mustUnlock(t, lk)
		if r := <-waiter; r.err != nil || r.lk.Token() <= lk.Token() {
			t.Errorf("%+v", r)
		}
	})
}
