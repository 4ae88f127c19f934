package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// losses are the ways in which a hold of "x" is lost, each by its cause.
var losses = map[holdfast.Cause]func(t *testing.T, srv *etcdfake.Server, p *kit.Process, lk *locker.Lock){
	holdfast.CauseExpired: blackHole,
	holdfast.CauseRevoked: func(_ *testing.T, srv *etcdfake.Server, _ *kit.Process, lk *locker.Lock) {
		srv.Revoke(lk.Lease())
	},
	holdfast.CauseEntryDeleted: func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, lk *locker.Lock) {
		if _, err := srv.Client(t).Delete(t.Context(), lk.Key()); err != nil {
			t.Error(err)
		}
	},
	holdfast.CauseKicked: func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, lk *locker.Lock) {
		c := admin.New(srv.Client(t), admin.Options{Auditor: quiet})
		if err := c.Kick(t.Context(), holdfast.KindLock, "x", lk.Token(), "stuck"); err != nil {
			t.Error(err)
		}
	},
	holdfast.CauseRemoved: func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, lk *locker.Lock) {
		c := admin.New(srv.Client(t), admin.Options{Auditor: quiet})
		go func() { // ends with the removal, which waits for the holder
			if err := c.Remove(context.Background(), holdfast.KindLock, "x", lk.Token(), "stuck"); err != nil {
				t.Error(err)
			}
		}()
	},
	holdfast.CauseMaxHold: func(*testing.T, *etcdfake.Server, *kit.Process, *locker.Lock) {},
}

// A function that was told of the loss, and has unlocked or closed the session, goes on with something else.
func TestFunctionThatUnlocksAfterTheLossIsNotTold(t *testing.T) {
	for end, giveUp := range map[string]func(a *kit.Process, lk *locker.Lock){
		"Unlock": func(_ *kit.Process, lk *locker.Lock) { _ = lk.Unlock(context.Background()) },
		"Close":  func(a *kit.Process, _ *locker.Lock) { _ = a.Sess.Close(context.Background()) },
	} {
		for cause, lose := range losses {
			t.Run(end+" after "+cause.String(), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					a, told := kit.Start(t, srv), make(overruns, 1)
					o := locker.Options{OnOverrun: told.add}
					if cause == holdfast.CauseMaxHold {
						o.MaxHold = 40 * time.Second
					}
					_ = locker.NewMutex(a.Sess, "x").With(o).Do(t.Context(), func(ctx context.Context, lk *locker.Lock) error {
						lose(t, srv, a, lk)
						<-ctx.Done()
						a.Heal()
						giveUp(a, lk)
						time.Sleep(5 * time.Minute)
						return nil
					})
					if len(told) > 0 {
						t.Errorf("told of %v", (<-told).lost)
					}
				})
			})
		}
	}
}

// Of several handles of one hold each is given up by itself: the inner function has unlocked its own, before the loss
// or after it, and goes on; the outer one has not.
func TestFunctionThatUnlocksItsHandleOfASharedHoldIsNotTold(t *testing.T) {
	for name, unlockFirst := range map[string]bool{"before the loss": true, "after the loss": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, inner, outer := kit.Start(t, srv), make(overruns, 1), make(overruns, 1)
				mu := locker.NewMutex(a.Sess, "x")
				_ = mu.With(locker.Options{Reentrant: true, OnOverrun: outer.add}).Do(t.Context(),
					func(ctx context.Context, _ *locker.Lock) error {
						return mu.With(locker.Options{Reentrant: true, OnOverrun: inner.add}).Do(ctx,
							func(ctx context.Context, lk *locker.Lock) error {
								if unlockFirst {
									_ = lk.Unlock(ctx)
								}
								srv.Revoke(lk.Lease())
								synctest.Wait()
								_ = lk.Unlock(context.Background())
								time.Sleep(time.Minute)
								return nil
							})
					})
				if len(inner) > 0 || len(outer) != 1 {
					t.Errorf("the inner function is told %d times, the outer one %d times", len(inner), len(outer))
				}
			})
		})
	}
}

// Each kind of lock is given up by its own verb.
func TestEveryKindOfLockIsGivenUpAfterTheLoss(t *testing.T) {
	type goOn = func(ctx context.Context, release func(context.Context) error)
	for name, do := range map[string]func(a *kit.Process, o locker.Options, f goOn) error{
		"Mutex": func(a *kit.Process, o locker.Options, f goOn) error {
			return locker.NewMutex(a.Sess, "x").With(o).TryDo(context.Background(),
				func(ctx context.Context, lk *locker.Lock) error { f(ctx, lk.Unlock); return nil })
		},
		"RWMutex, reading": func(a *kit.Process, o locker.Options, f goOn) error {
			return locker.NewRWMutex(a.Sess, "x").With(o).RDo(context.Background(),
				func(ctx context.Context, lk *locker.ReadLock) error { f(ctx, lk.Unlock); return nil })
		},
		"RWMutex, before the downgrade": func(a *kit.Process, o locker.Options, f goOn) error {
			return locker.NewRWMutex(a.Sess, "x").With(o).DoDowngradable(context.Background(),
				func(ctx context.Context, lk *locker.Lock) error { f(ctx, lk.Unlock); return nil },
				func(context.Context, *locker.ReadLock) error { return nil })
		},
		"RWMutex, downgraded": func(a *kit.Process, o locker.Options, f goOn) error {
			return locker.NewRWMutex(a.Sess, "x").With(o).DoDowngradable(context.Background(),
				func(context.Context, *locker.Lock) error { return nil },
				func(ctx context.Context, lk *locker.ReadLock) error { f(ctx, lk.Unlock); return nil })
		},
		"Set": func(a *kit.Process, o locker.Options, f goOn) error {
			return locker.NewSet(a.Sess, locker.Write("x"), locker.Read("y")).With(o).Do(context.Background(),
				func(ctx context.Context, s *locker.SetLock) error { f(ctx, s.Unlock); return nil })
		},
		"TreeMutex": func(a *kit.Process, o locker.Options, f goOn) error {
			return locker.NewTreeMutex(a.Sess, "x/y").With(o).Do(context.Background(),
				func(ctx context.Context, lk *locker.Lock) error { f(ctx, lk.Unlock); return nil })
		},
		"Semaphore": func(a *kit.Process, o locker.Options, f goOn) error {
			return locker.NewSemaphore(a.Sess, "x", 2).With(o).Do(context.Background(), 1,
				func(ctx context.Context, p *locker.Permit) error { f(ctx, p.Release); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, told := kit.Start(t, srv), make(overruns, 1)
				_ = do(a, locker.Options{OnOverrun: told.add}, func(ctx context.Context, release func(context.Context) error) {
					srv.Revoke(a.Sess.Lease())
					<-ctx.Done()
					_ = release(context.Background())
					time.Sleep(time.Minute)
				})
				if len(told) > 0 {
					t.Errorf("told of %v", (<-told).lost)
				}
			})
		})
	}
}
