package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// overrun is a call of OnOverrun.
type overrun struct {
	lost      *holdfast.LostError
	since, at time.Time
}

// overruns collects calls of OnOverrun.
type overruns chan overrun

func (o overruns) add(lost *holdfast.LostError, since time.Time) {
	o <- overrun{lost, since, time.Now()}
}

// quiet is an auditor that drops its records.
var quiet = audit.Func(func(context.Context, audit.Record) {})

// grace is that of the kit's sessions.
const grace = min(kit.LockDelay, kit.Margin) / 2

// The function never looks at its context. The call comes at its time, and before the next holder holds.
func TestWorkThatOutlivesItsLockIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		opts  locker.Options
		fault func(t *testing.T, srv *etcdfake.Server, p *kit.Process, lk *locker.Lock)
		cause holdfast.Cause
		loss  time.Duration // after the grant; 0: at the fault
		grace time.Duration
		late  time.Duration // most
		free  bool          // the name is free at the loss
	}{
		"expired": {fault: blackHole, cause: holdfast.CauseExpired, loss: kit.Trust, grace: grace},
		"expired, and its context ended before": {
			opts: locker.Options{CancelOnSuspended: true}, fault: blackHole, cause: holdfast.CauseExpired, loss: kit.Trust,
		},
		"revoked": {fault: func(_ *testing.T, srv *etcdfake.Server, _ *kit.Process, lk *locker.Lock) {
			srv.Revoke(lk.Lease())
		}, cause: holdfast.CauseRevoked, grace: grace, late: 4 * kit.OneWay},
		"kicked": {fault: func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, lk *locker.Lock) {
			c := admin.New(srv.Client(t), admin.Options{Auditor: quiet})
			if err := c.Kick(t.Context(), holdfast.KindLock, "x", lk.Token(), "stuck"); err != nil {
				t.Error(err)
			}
		}, cause: holdfast.CauseKicked, grace: 30*time.Second + grace, late: 2 * time.Second},
		"kicked, then removed": {fault: func(t *testing.T, srv *etcdfake.Server, a *kit.Process, lk *locker.Lock) {
			c := admin.New(srv.Client(t), admin.Options{Auditor: quiet})
			err := c.Kick(t.Context(), holdfast.KindLock, "x", lk.Token(), "stuck")
			<-lk.Done()
			time.AfterFunc(5*time.Second, func() {
				if err := c.Remove(context.Background(), holdfast.KindLock, "x", lk.Token(), "stuck"); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Error(err)
			}
		}, cause: holdfast.CauseKicked, grace: 5*time.Second + grace, late: 2 * time.Second},
		"removed": {fault: func(t *testing.T, srv *etcdfake.Server, _ *kit.Process, lk *locker.Lock) {
			c := admin.New(srv.Client(t), admin.Options{Auditor: quiet})
			go func() { // ends with the removal, which waits for the holder
				if err := c.Remove(context.Background(), holdfast.KindLock, "x", lk.Token(), "stuck"); err != nil {
					t.Error(err)
				}
			}()
		}, cause: holdfast.CauseRemoved, grace: grace, late: 2 * time.Second},
		"MaxHold": {
			opts: locker.Options{MaxHold: 40 * time.Second}, cause: holdfast.CauseMaxHold, loss: 40 * time.Second,
			grace: grace, free: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := kit.Start(t, srv), kit.Start(t, srv)
				told, finish := make(overruns, 2), make(chan struct{})
				c.opts.OnOverrun = told.add
				done := make(chan error, 1)
				granted := make(chan *locker.Lock)
				begin := time.Now()
				go func() { // ends with finish
					done <- locker.NewMutex(a.Sess, "x").With(c.opts).Do(context.Background(),
						func(_ context.Context, lk *locker.Lock) error { granted <- lk; <-finish; return nil })
				}()
				lk := <-granted
				next := lockLater(kit.Within(t, time.Hour), locker.NewMutex(b.Sess, "x"))
				kit.Queued(t, srv, kit.Entries("x"), 2)
				if c.fault != nil {
					c.fault(t, srv, a, lk)
					begin = time.Now()
				}
				o := <-told
				after := o.at.Sub(begin) - c.loss - c.grace
				if after < -kit.Margin && c.cause == holdfast.CauseExpired || after < 0 && c.cause != holdfast.CauseExpired ||
					after > c.late+kit.Prompt {
					t.Errorf("told %v after the earliest moment", after)
				}
				if o.lost.Cause != c.cause || o.lost.Name != "x" || o.lost.Token != lk.Token() {
					t.Errorf("told %v", o.lost)
				}
				if early := o.at.Sub(o.since) - c.grace; early < 0 || early > 0 && c.late == 0 || early > c.late {
					t.Errorf("told %v after the loss, want %v", o.at.Sub(o.since), c.grace)
				}
				if !c.free && len(next) > 0 {
					t.Error("told when the next one holds")
				}
				a.Heal()
				time.Sleep(time.Minute)
				close(finish)
				if err := <-done; !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("Do returned %v", err)
				}
				mustUnlock(t, (<-next).lk)
				time.Sleep(time.Minute)
				if len(told) > 0 {
					t.Errorf("told again: %v", <-told)
				}
			})
		})
	}
}

func blackHole(_ *testing.T, _ *etcdfake.Server, p *kit.Process, _ *locker.Lock) { p.Link.BlackHole() }

// A process that goes on after its lease has ended gets no grace: the next one may hold.
func TestWorkThatOutlivesItsLockDuringAPauseIsToldAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := kit.Start(t, srv)
		told := make(overruns, 1)
		err := locker.NewMutex(a.Sess, "x").With(locker.Options{OnOverrun: told.add}).Do(t.Context(),
			func(context.Context, *locker.Lock) error {
				a.Stop()
				time.Sleep(2 * kit.TTL)
				resumed := time.Now()
				a.Resume()
				o := <-told
				if after := o.at.Sub(resumed); after > 0 || o.lost.Cause != holdfast.CauseExpired {
					t.Errorf("told %v after the pause: %v", after, o.lost)
				}
				if ago := o.at.Sub(o.since); ago < 2*kit.TTL-kit.Trust || ago > 2*kit.TTL {
					t.Errorf("lost since %v", ago)
				}
				return nil
			})
		if !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Do returned %v", err)
		}
	})
}

func TestWorkThatEndsInTimeIsNotTold(t *testing.T) {
	for name, work := range map[string]func(ctx context.Context, a *kit.Process, lk *locker.Lock){
		"it ends before the loss": func(context.Context, *kit.Process, *locker.Lock) {},
		"it ends with its context": func(ctx context.Context, a *kit.Process, _ *locker.Lock) {
			a.Link.BlackHole()
			<-ctx.Done()
		},
		"it ends with the grace": func(ctx context.Context, a *kit.Process, _ *locker.Lock) {
			a.Link.BlackHole()
			<-ctx.Done()
			time.Sleep(grace - 1)
		},
		"the session is suspended": func(_ context.Context, a *kit.Process, _ *locker.Lock) {
			a.Link.BlackHole()
			time.Sleep(kit.Trust * 3 / 4)
			a.Heal()
			time.Sleep(time.Minute)
		},
		"it unlocks": func(_ context.Context, _ *kit.Process, lk *locker.Lock) {
			_ = lk.Unlock(context.Background())
			time.Sleep(time.Minute)
		},
		"the program closes the session": func(_ context.Context, a *kit.Process, _ *locker.Lock) {
			_ = a.Sess.Close(context.Background())
			time.Sleep(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a := kit.Start(t, srv)
				told := make(overruns, 1)
				o := locker.Options{OnOverrun: told.add}
				_ = locker.NewMutex(a.Sess, "x").With(o).Do(t.Context(), func(ctx context.Context, lk *locker.Lock) error {
					work(ctx, a, lk)
					return nil
				})
				a.Heal()
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(told) > 0 {
					t.Errorf("told of %v", (<-told).lost)
				}
			})
		})
	}
}

// Each kind of lock tells it, and none does in a phase that is over.
func TestEveryKindOfLockTellsOfWorkThatOutlivesIt(t *testing.T) {
	wait := func(finish <-chan struct{}) { <-finish }
	type doFunc = func(ctx context.Context, a *kit.Process, o locker.Options, finish <-chan struct{}) error
	for name, do := range map[string]doFunc{
		"Mutex": func(ctx context.Context, a *kit.Process, o locker.Options, finish <-chan struct{}) error {
			o.Reentrant = true
			return locker.NewMutex(a.Sess, "x").With(o).TryDo(ctx,
				func(context.Context, *locker.Lock) error { wait(finish); return nil })
		},
		"RWMutex, reading": func(ctx context.Context, a *kit.Process, o locker.Options, finish <-chan struct{}) error {
			return locker.NewRWMutex(a.Sess, "x").With(o).RDo(ctx,
				func(context.Context, *locker.ReadLock) error { wait(finish); return nil })
		},
		"RWMutex, downgraded": func(ctx context.Context, a *kit.Process, o locker.Options, finish <-chan struct{}) error {
			return locker.NewRWMutex(a.Sess, "x").With(o).DoDowngradable(ctx,
				func(context.Context, *locker.Lock) error { return nil },
				func(context.Context, *locker.ReadLock) error { wait(finish); return nil })
		},
		"TreeMutex": func(ctx context.Context, a *kit.Process, o locker.Options, finish <-chan struct{}) error {
			return locker.NewTreeMutex(a.Sess, "x").With(o).Do(ctx,
				func(context.Context, *locker.Lock) error { wait(finish); return nil })
		},
		"Semaphore": func(ctx context.Context, a *kit.Process, o locker.Options, finish <-chan struct{}) error {
			return locker.NewSemaphore(a.Sess, "x", 2).With(o).Do(ctx, 1,
				func(context.Context, *locker.Permit) error { wait(finish); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a := kit.Start(t, srv)
				told, finish := make(overruns, 2), make(chan struct{})
				go func() { // joined by the receive from finish
					time.Sleep(time.Second)
					a.Link.BlackHole()
					o := <-told
					if o.lost.Name != "x" || o.lost.Cause != holdfast.CauseExpired {
						t.Errorf("told of %v", o.lost)
					}
					time.Sleep(time.Minute)
					close(finish)
				}()
				if err := do(t.Context(), a, locker.Options{OnOverrun: told.add}, finish); !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("returned %v", err)
				}
				if len(told) > 0 {
					t.Errorf("told twice: %v", (<-told).lost)
				}
			})
		})
	}
}
