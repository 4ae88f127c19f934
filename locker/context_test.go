package locker_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// The contexts of a lock end as Unlock begins. That does not cut the release
// short, and the deadline of a context that outlives the lock counts as it is.
func TestUnlockIsBoundedByTheContextThatLivesOnceTheLockHasEnded(t *testing.T) {
	const closeTimeout = 5 * time.Second // the default
	threeSeconds := func(own context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(own), 3*time.Second)
	}
	background := func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }
	dead := func() (context.Context, context.CancelFunc) {
		ctx, cancel := background()
		cancel()
		return ctx, cancel
	}
	brief := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 3*time.Millisecond)
	}
	for name, c := range map[string]struct {
		parent func() (context.Context, context.CancelFunc)
		from   func(own context.Context) (context.Context, context.CancelFunc)
		bound  time.Duration
	}{
		"the lock's own": {background, context.WithCancel, closeTimeout},
		"a child of the lock's own, with a deadline": {background, func(own context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(own, time.Second)
		}, closeTimeout},
		"a clean-up context":                      {background, threeSeconds, 3 * time.Second},
		"a clean-up context, the parent is dead":  {dead, threeSeconds, 3 * time.Second},
		"a clean-up context, the parent has 3 ms": {brief, threeSeconds, 3 * time.Second},
		"the lock's own, the parent has 3 ms":     {brief, context.WithCancel, closeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				for _, reachable := range []bool{true, false} {
					lk := mustLock(t, locker.NewMutex(p.sess, "x"))
					parent, cancel := c.parent()
					defer cancel()
					own, cancel := lk.Context(parent)
					defer cancel()
					ctx, cancel := c.from(own)
					defer cancel()
					if !reachable {
						p.link.BlackHole()
					}
					began := time.Now()
					err := lk.Unlock(ctx)
					took := time.Since(began)
					if reachable && (err != nil || took != 2*oneWay) {
						t.Errorf("Unlock: %v after %v, want success after a round trip", err, took)
					}
					if !reachable && (took != c.bound || !errors.Is(err, holdfast.ErrOutcomeUnknown)) {
						t.Errorf("cut off, Unlock returned after %v, want %v: %v", took, c.bound, err)
					}
				}
				p.heal()
				time.Sleep(10 * time.Second)
				nothingStands(t, srv)
			})
		})
	}
}

func TestContextOfALockThatHasEndedIsDeadFromTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		mu := locker.NewMutex(p.sess, "x").With(locker.Options{CancelOnSuspended: true})
		expectDead := func(lk *locker.Lock, want error) {
			t.Helper()
			ctx, cancel := lk.Context(context.Background())
			defer cancel()
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), want) {
				t.Errorf("a new context: %v, cause %v, want %v", ctx.Err(), context.Cause(ctx), want)
			}
		}
		lk := mustLock(t, mu)
		mustUnlock(t, lk)
		expectDead(lk, holdfast.ErrReleased)

		lk = mustLock(t, mu)
		p.suspend(7 * time.Second) // the clock has gone on; no timer has fired yet
		expectDead(lk, holdfast.ErrSuspended)
		p.suspend(7 * time.Second)
		expectDead(lk, holdfast.ErrLost)
	})
}

// Others may hold as soon as the entry is gone, so the work must have been told.
func TestContextsEndBeforeTheEntryIsRemoved(t *testing.T) {
	for name, end := range map[string]func(lk *locker.Lock){
		"MaxHold": func(lk *locker.Lock) { <-lk.Done() },
		"Unlock":  func(lk *locker.Lock) { _ = lk.Unlock(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				lk := mustLock(t, locker.NewMutex(p.sess, "x").With(locker.Options{MaxHold: time.Minute}))
				var contexts []context.Context
				for range 1000 {
					ctx, cancel := lk.Context(context.Background())
					defer cancel()
					contexts = append(contexts, ctx)
				}
				alive, removals := 0, 0
				p.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					txn, ok := c.Request.(*pb.TxnRequest)
					if !ok || len(txn.Success) == 0 || !bytes.Equal(txn.Success[0].GetRequestDeleteRange().GetKey(), []byte(lk.Key())) {
						return etcdfake.Fate{}
					}
					removals++
					for _, ctx := range contexts {
						if ctx.Err() == nil {
							alive++
						}
					}
					return etcdfake.Fate{}
				})
				end(lk)
				time.Sleep(4 * oneWay)
				nothingStands(t, srv)
				if removals != 1 || alive != 0 {
					t.Errorf("%d removals sent, %d contexts alive as they were", removals, alive)
				}
			})
		})
	}
}

// The lease may have been revoked before Unlock was called, and nothing says
// that it was not.
func TestUnlockThatIsUnansweredWhenItsLeaseIsRevokedReportsTheLoss(t *testing.T) {
	for name, patience := range map[string]time.Duration{"it waits for the answer": time.Minute, "its context ends": 6 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				mu := locker.NewMutex(p.sess, "x")
				unanswered := func(lk *locker.Lock) {
					p.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
						_, txn := c.Request.(*pb.TxnRequest)
						return etcdfake.Fate{LoseRequest: txn, Silent: true}
					})
					time.AfterFunc(time.Second, func() { srv.Revoke(lk.Lease()) }) // a renewal tells, at 5 s at the latest
				}
				expectLoss := func(what string, err error) {
					t.Helper()
					var lost *holdfast.LostError
					if !errors.As(err, &lost) || lost.Cause != holdfast.CauseRevoked || errors.Is(err, holdfast.ErrOutcomeUnknown) {
						t.Errorf("%s: %v", what, err)
					}
				}
				lk := mustLock(t, mu)
				unanswered(lk)
				expectLoss("Unlock", lk.Unlock(soon(t, patience)))
				if err := lk.Check(); err != holdfast.ErrReleased {
					t.Errorf("Check: %v", err)
				}
				p.heal()
				expectLoss("Do", mu.Do(soon(t, patience), func(_ context.Context, lk *locker.Lock) error {
					unanswered(lk)
					return nil
				}))
			})
		})
	}
}
