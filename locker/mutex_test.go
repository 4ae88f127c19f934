package locker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestZeroMutexGivesAnErrorAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, *locker.Lock) error { return nil }
	zero := &locker.Mutex{}
	for what, err := range map[string]error{
		"Lock":    func() error { _, err := zero.Lock(t.Context()); return err }(),
		"TryLock": func() error { _, err := zero.With(locker.Options{}).TryLock(t.Context()); return err }(),
		"Do":      zero.Do(t.Context(), nothing),
		"TryDo":   zero.TryDo(t.Context(), nothing),
	} {
		var argument *holdfast.ArgumentError
		if !errors.As(err, &argument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if zero.Name() != "" {
		t.Errorf("name %q", zero.Name())
	}
}

func TestDoDoesNotFailFinishedWorkForALeaseThatExpiresDuringTheRelease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		err := locker.NewMutex(p.Sess, "x").Do(t.Context(), func(context.Context, *locker.Lock) error {
			p.Link.BlackHole()
			return nil
		})
		if err != nil || !errors.Is(p.Sess.Check(), holdfast.ErrLost) {
			t.Errorf("Do: %v, the session: %v", err, p.Sess.Check())
		}
	})
}

// A function that returns the cause of its context tells of the loss already.
func TestDoTellsOfALossOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lose := func(fn func(ctx context.Context) error) error {
			return locker.NewMutex(p.Sess, "x").Do(t.Context(), func(ctx context.Context, lk *locker.Lock) error {
				srv.Revoke(p.Sess.Lease())
				<-ctx.Done()
				return fn(ctx)
			})
		}
		if err := lose(context.Cause); !isLost(err) {
			t.Errorf("the loss is told twice: %v", err)
		}
		if err := lose(context.Context.Err); isLost(err) || !errors.Is(err, holdfast.ErrLost) ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// isLost reports whether err is a loss and nothing else.
func isLost(err error) bool {
	_, ok := err.(*holdfast.LostError)
	return ok
}

// Scenario 12. Two processes that call themselves the same are two contenders.
func TestProcessesOfOneOwnerExcludeEachOther(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		same := locker.Options{Owner: "worker"}
		lk := mustLock(t, locker.NewMutex(a.Sess, "x").With(same))
		waiter := lockLater(t.Context(), locker.NewMutex(b.Sess, "x").With(same))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		time.Sleep(5 * time.Minute)
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

// A job that fails, or panics, is not run again by the next process that ticks.
func TestErrorsAndPanicsOfTheWorkDoNotEndMinHold(t *testing.T) {
	for name, work := range map[string]func(context.Context, *locker.Lock) error{
		"error": func(context.Context, *locker.Lock) error { return errors.New("failed") },
		"panic": func(context.Context, *locker.Lock) error { panic("failed") },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := kit.Start(t, srv), kit.Start(t, srv)
				func() {
					defer func() { _ = recover() }()
					_ = locker.NewMutex(a.Sess, "x").With(locker.Options{MinHold: time.Minute}).TryDo(t.Context(), work)
				}()
				began := time.Now()
				_, err := locker.NewMutex(b.Sess, "x").With(locker.Options{MinHold: time.Minute}).TryLock(t.Context())
				if !errors.Is(err, locker.ErrLocked) {
					t.Errorf("TryLock of another process: %v", err)
				}
				mustLock(t, locker.NewMutex(b.Sess, "x"))
				if taken := time.Since(began); taken < time.Minute-kit.Prompt {
					t.Errorf("taken for %v more", taken)
				}
			})
		})
	}
}

func TestAuditSaysForHowLongANameStaysTaken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		var records []audit.Record
		lk := mustLock(t, locker.NewMutex(p.Sess, "x").With(locker.Options{
			MinHold: time.Minute,
			Auditor: audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) }),
		}))
		time.Sleep(10 * time.Second)
		mustUnlock(t, lk)
		synctest.Wait()
		if len(records) != 2 || records[1].Event != audit.Released || records[1].TakenFor != 50*time.Second {
			t.Errorf("records: %+v", records)
		}
	})
}

// Twenty intervals of a minute, three processes that tick a little apart: with MinHold
// one run each, without it three. (With real processes: in tests/robustness.)
func TestThreeProcessesRunAJobOncePerInterval(t *testing.T) {
	for minHold, want := range map[time.Duration]int{55 * time.Second: 20, 0: 60} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			runs := make(chan int, 60)
			var all sync.WaitGroup
			for n := range 3 {
				p := kit.Start(t, srv)
				mu := locker.NewMutex(p.Sess, "job").With(locker.Options{MinHold: minHold})
				all.Go(func() { // joined below
					time.Sleep(time.Duration(n) * 700 * time.Millisecond)
					for interval := range 20 {
						_ = mu.TryDo(t.Context(), func(context.Context, *locker.Lock) error {
							time.Sleep(100 * time.Millisecond)
							runs <- interval
							return nil
						})
						time.Sleep(time.Minute - 100*time.Millisecond)
					}
				})
			}
			all.Wait()
			if len(runs) != want {
				t.Errorf("MinHold %v: %d runs, want %d", minHold, len(runs), want)
			}
		})
	}
}

// Etcd does not answer. Who looks for context.Canceled looks for the end of the program.
func TestLockThatRunsOutOfTimeWasNotCanceled(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		p.Link.BlackHole()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := locker.NewMutex(p.Sess, "x").Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
