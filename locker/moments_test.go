package locker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// These tests put one event at every moment of a short exchange: a bubble for
// each. A step is less than a message takes, so that between any two messages
// there are several.
const step = oneWay / 2

// atEveryMoment runs a test for each offset from a start to an end: between
// messages, and a few times at the very instant at which one arrives, when Go
// decides who is first.
func atEveryMoment(t *testing.T, from, to time.Duration, f func(t *testing.T, srv *etcdfake.Server, offset time.Duration)) {
	t.Helper()
	for at := from; at <= to; at += step {
		for _, offset := range []time.Duration{at + 17*time.Microsecond, at, at, at} {
			t.Run(fmt.Sprint(offset), func(t *testing.T) {
				inBubble(t, func(t *testing.T, srv *etcdfake.Server) { f(t, srv, offset) })
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
			lk := mustLock(t, locker.NewMutex(a.sess, "x"))
			return func() { mustUnlock(t, lk) }
		},
		"behind its own process": func(t *testing.T, _ *etcdfake.Server, _, b *process) func() {
			lk := mustLock(t, locker.NewMutex(b.sess, "x"))
			return func() { mustUnlock(t, lk) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			granted, cancelled := 0, 0
			atEveryMoment(t, 0, 12*oneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
				a, b := start(t, srv), start(t, srv)
				release := waiting(t, srv, a, b)
				ctx, cancel := context.WithCancel(t.Context())
				waiter := lockLater(ctx, locker.NewMutex(b.sess, "x"))
				if name != "the lock is free" {
					time.Sleep(time.Second)
					go release() // ends before the bubble does
				}
				time.Sleep(offset)
				cancel()
				r := <-waiter
				if r.err == nil {
					granted++
					if r.lk.Check() != nil || !owns(srv, r.lk) {
						t.Errorf("success: Check %v, entries %v", r.lk.Check(), standing(srv, "x"))
					}
					mustUnlock(t, r.lk)
				} else {
					cancelled++
					if !errors.Is(r.err, context.Canceled) {
						t.Error(r.err)
					}
				}
				time.Sleep(time.Second)
				if left := standing(srv, "x"); len(left) != 0 {
					t.Errorf("returned %v, and left %v", r.err, left)
				}
				time.Sleep(time.Minute)
				for _, c := range srv.History("holdfast/lock/x/@/") {
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

func mustUnlock(t *testing.T, lk *locker.Lock) {
	t.Helper()
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// Scenario 10. The context of Unlock ends at any moment of it: it has released,
// or says that it does not know, and either way the entry goes at once.
func TestUnlockCancelledOnTheWayHasReleasedOrSaysUnknown(t *testing.T) {
	released, unknown := 0, 0
	atEveryMoment(t, 0, 4*oneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		a := start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.sess, "x"))
		ctx, cancel := context.WithTimeout(t.Context(), offset)
		defer cancel()
		err := lk.Unlock(ctx)
		switch {
		case err == nil:
			released++
			if left := standing(srv, "x"); len(left) != 0 {
				t.Errorf("Unlock returned nil, entries %v", left)
			}
		case errors.Is(err, holdfast.ErrOutcomeUnknown) && errors.Is(err, context.DeadlineExceeded):
			unknown++
		default:
			t.Errorf("Unlock: %v", err)
		}
		if err := lk.Check(); err != holdfast.ErrReleased {
			t.Errorf("Check: %v", err)
		}
		time.Sleep(2 * oneWay)
		if left := standing(srv, "x"); len(left) != 0 {
			t.Errorf("Unlock returned %v, entries %v", err, left)
		}
	})
	if released == 0 || unknown == 0 {
		t.Errorf("released %d times, unknown %d times: the moments are not around the answer", released, unknown)
	}
}

// Scenarios 17 and 18. A waiter's lease ends at any moment around the one at
// which its predecessor leaves: it is granted only an entry that a read has
// seen afterwards, on a lease that it was not told is lost.
func TestWaiterWhoseLeaseEndsAsItsPredecessorLeavesHoldsOnlyWhatStood(t *testing.T) {
	sameLease, nextLease := 0, 0
	atEveryMoment(t, -8*oneWay, 12*oneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		a, b := start(t, srv), start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.sess, "x"))
		old := b.sess.Lease()
		waiter := lockLater(deadline(t), locker.NewMutex(b.sess, "x"))
		queued(t, srv, "x", 2)
		time.Sleep(time.Second)
		begin := time.Now()
		go func() { // both end before the bubble does
			time.Sleep(20 * oneWay)
			mustUnlock(t, lk)
		}()
		time.Sleep(time.Until(begin.Add(20*oneWay + offset)))
		srv.Revoke(old)
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		left, ended := int64(0), int64(0) // the revisions at which the predecessor's entry and the granted one ended
		for _, c := range srv.History("holdfast/lock/x/@/") {
			switch {
			case c.Deleted && string(c.Kv.Key) == lk.Key():
				left = c.Revision
			case c.Deleted && string(c.Kv.Key) == r.lk.Key():
				ended = c.Revision
			}
		}
		if left == 0 || ended != 0 && ended < left {
			t.Errorf("the predecessor left at revision %d, the granted entry was gone at %d", left, ended)
		}
		if r.lk.Lease() != old {
			nextLease++
			if r.lk.Check() != nil || !owns(srv, r.lk) {
				t.Errorf("on the next lease: Check %v, entries %v", r.lk.Check(), standing(srv, "x"))
			}
			return
		}
		sameLease++ // revoked behind the read: it is told within 2 s
		select {
		case <-r.lk.Done():
		case <-time.After(2 * time.Second):
			t.Errorf("not told within 2 s that its entry is gone")
		}
	})
	if sameLease == 0 || nextLease == 0 {
		t.Errorf("granted %d times before the lease ended, %d times on the next: the moments are not around the grant", sameLease, nextLease)
	}
}
