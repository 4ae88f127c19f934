package locker_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// within returns a context of a lock for one call, without the lock's end.
func within(t *testing.T, lk interface {
	WithContext(context.Context) (context.Context, context.CancelFunc)
}) context.Context {
	ctx, cancel := lk.WithContext(t.Context())
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// again locks with a context of a lock, and fails the test if that is not the same hold.
func again(t *testing.T, mu *locker.Mutex, outer *locker.Lock) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(within(t, outer))
	if err != nil {
		t.Fatal(err)
	}
	if lk == outer || lk.Token() != outer.Token() || lk.Key() != outer.Key() || lk.Check() != nil {
		t.Fatalf("another lock: %q %v, want %q %v; %v", lk.Key(), lk.Token(), outer.Key(), outer.Token(), lk.Check())
	}
	return lk
}

func ended(lk interface{ Done() <-chan struct{} }) bool {
	select {
	case <-lk.Done():
		return true
	default:
		return false
	}
}

func TestReentrantCallsSendNothingAndTheLastUnlockRemovesTheEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		time.Sleep(kit.Prompt) // the session has set the watch of its session key
		var records []audit.Record
		rw := locker.NewRWMutex(p.Sess, "x").With(locker.Options{
			Reentrant: true,
			Auditor:   audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) }),
		})
		runs := 0
		write := func(ctx context.Context, lk *locker.Lock) error { runs++; return lk.Check() }
		read := func(ctx context.Context, lk *locker.ReadLock) error { runs++; return lk.Check() }
		p.Plan(nil)
		err := rw.Do(t.Context(), func(ctx context.Context, outer *locker.Lock) error {
			return errors.Join(rw.Do(ctx, write), rw.TryDo(ctx, write), rw.RDo(ctx, read), rw.TryRDo(ctx, read),
				rw.RDo(ctx, func(ctx context.Context, _ *locker.ReadLock) error { // the outer hold covers this
					return rw.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
						if h, _ := fencing.FromContext(ctx); h != lk || lk.Token() != outer.Token() {
							t.Errorf("innermost: token %v, want %v; the context carries %v", lk.Token(), outer.Token(), h)
						}
						return write(ctx, lk)
					})
				}))
		})
		if err != nil || runs != 5 {
			t.Errorf("%d functions ran, want 5: %v", runs, err)
		}
		if got, want := p.Counts(), (map[string]int{"enqueue": 1, "remove": 1}); !maps.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
		synctest.Wait()
		if len(records) != 2 || records[0].Event != audit.Granted || records[1].Event != audit.Released {
			t.Errorf("audited: %+v", records)
		}
		kit.NothingStands(t, srv)
	})
}

func TestReentrantLockEndsWithItsOwnUnlock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustLock(t, mu)
		inner := again(t, mu, outer)
		ctx, cancel := inner.WithContext(t.Context())
		defer cancel()
		another, cancel := inner.WithContext(t.Context())
		defer cancel()
		if err := inner.Unlock(nil); err == nil || inner.Check() != nil { //nolint:staticcheck // that is what is tested
			t.Errorf("Unlock without a context: %v; the lock: %v", err, inner.Check())
		}
		for range 3 {
			mustUnlock(t, inner)
		}
		late, cancel := inner.WithContext(t.Context())
		defer cancel()
		synctest.Wait()
		for what, err := range map[string]error{
			"Check":   inner.Check(),
			"context": context.Cause(ctx), "another context": context.Cause(another), "late": context.Cause(late),
		} {
			if !errors.Is(err, holdfast.ErrReleased) {
				t.Errorf("the inner lock: %s: %v", what, err)
			}
		}
		if !ended(inner) || ended(outer) || outer.Check() != nil || !owns(srv, outer) {
			t.Errorf("inner ended: %t, outer ended: %t, %v", ended(inner), ended(outer), outer.Check())
		}
		mustUnlock(t, outer)
		kit.NothingStands(t, srv)
	})
}

func TestHoldDoesNotKeepInnerLocksThatAreUnlocked(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustLock(t, mu)
		ctx := within(t, outer)
		objects := func() int {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapObjects)
		}
		before := objects()
		const locks = 10_000
		for range locks {
			if err := mu.Do(ctx, func(context.Context, *locker.Lock) error { return nil }); err != nil {
				t.Fatal(err)
			}
			_, cancel := outer.WithContext(ctx)
			cancel()
		}
		if more := objects() - before; more > locks/2 {
			t.Errorf("%d objects are left of %d inner locks", more, locks)
		}
		mustUnlock(t, outer)
	})
}

func TestOuterLockMayBeUnlockedBeforeInnerOnes(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustLock(t, mu)
		inner := again(t, mu, outer)
		waiter := lockLater(kit.Within(t, time.Minute), mu)
		mustUnlock(t, outer)
		if !ended(outer) || !errors.Is(outer.Check(), holdfast.ErrReleased) {
			t.Errorf("the outer lock: %v", outer.Check())
		}
		third := again(t, mu, inner)
		mustUnlock(t, inner)
		synctest.Wait()
		select {
		case r := <-waiter:
			t.Errorf("another goroutine holds beside an inner lock: %+v", r)
		default:
		}
		if third.Check() != nil || !owns(srv, third) {
			t.Errorf("the last lock: %v", third.Check())
		}
		mustUnlock(t, third)
		if r := <-waiter; r.err != nil || r.lk.Token() <= third.Token() {
			t.Errorf("the waiter: %+v", r)
		}
	})
}

func TestNameStaysTakenWhileAGoroutineOutlivesTheOuterDo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		mu := locker.NewMutex(a.Sess, "x").With(locker.Options{Reentrant: true})
		working, done := make(chan struct{}), make(chan error, 1)
		err := mu.Do(t.Context(), func(ctx context.Context, _ *locker.Lock) error {
			go func() { // joined below
				done <- mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
					close(working)
					<-ctx.Done() // the outer Do has returned
					time.Sleep(time.Minute)
					return lk.Check()
				})
			}()
			<-working
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		_, err = locker.NewMutex(b.Sess, "x").TryLock(t.Context())
		if !errors.Is(err, locker.ErrLocked) {
			t.Errorf("TryLock while the inner Do runs: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("the inner Do: %v", err)
		}
		mustUnlock(t, mustLock(t, locker.NewMutex(b.Sess, "x")))
	})
}

func TestReentrancyNeedsTheOptionOfBothCalls(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		plain := locker.NewMutex(p.Sess, "x")
		opted := plain.With(locker.Options{Reentrant: true})
		for _, c := range []struct{ outer, inner *locker.Mutex }{{plain, opted}, {opted, plain}} {
			lk := mustLock(t, c.outer)
			if _, err := c.inner.Lock(within(t, lk)); !errors.Is(err, holdfast.ErrReentrant) {
				t.Errorf("Lock: %v", err)
			}
			mustUnlock(t, lk)
			mustUnlock(t, mustLock(t, plain)) // nothing was counted
		}
	})
}

func TestOptionsOfAReentrantCallAreValidated(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustLock(t, mu)
		_, err := mu.With(locker.Options{Reentrant: true, MaxHold: -1}).Lock(within(t, outer))
		var bad *holdfast.ArgumentError
		if !errors.As(err, &bad) || bad.Argument != "Options.MaxHold" {
			t.Errorf("Lock: %v", err)
		}
		mustUnlock(t, outer)
	})
}

func TestLockThatCanBeDowngradedIsNotShared(t *testing.T) {
	t.Parallel()
	_, err := locker.NewRWMutex(nil, "x").With(locker.Options{Reentrant: true}).LockDowngradable(t.Context())
	var bad *holdfast.ArgumentError
	if !errors.As(err, &bad) || bad.Argument != "Options.Reentrant" || !strings.Contains(bad.Reason, "not shared") {
		t.Errorf("LockDowngradable: %v", err)
	}
}

func TestLocksOfASetAreNotShared(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		set := locker.NewSet(p.Sess, locker.Write("x"), locker.Read("y"))
		err := set.Do(t.Context(), func(ctx context.Context, _ *locker.SetLock) error {
			for _, name := range []string{"x", "y"} {
				rw := locker.NewRWMutex(p.Sess, name).With(locker.Options{Reentrant: true})
				if _, err := rw.Lock(ctx); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("Lock of %s: %v", name, err)
				}
				if _, err := rw.RLock(ctx); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("RLock of %s: %v", name, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestReentrantReadersShareAHoldAndDoNotUpgrade(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		rw := locker.NewRWMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustRLock(t, rw)
		writer := lockLater(kit.Within(t, time.Minute), rw)
		kit.Queued(t, srv, kit.Entries("x"), 2)
		inner, err := rw.RLock(within(t, outer)) // does not wait behind the writer
		if err != nil || inner.Key() != outer.Key() {
			t.Fatalf("RLock of a reader: %v", err)
		}
		for _, lock := range []func(context.Context) (*locker.Lock, error){rw.Lock, rw.TryLock} {
			if _, err := lock(within(t, inner)); !errors.Is(err, holdfast.ErrReentrant) {
				t.Errorf("Lock of a reader: %v", err)
			}
		}
		if err := outer.Unlock(t.Context()); err != nil || inner.Check() != nil || !ended(outer) {
			t.Errorf("the outer lock: %v; the inner: %v", err, inner.Check())
		}
		if err := inner.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		r := <-writer
		if r.err != nil {
			t.Fatal(r.err)
		}
		// What a writer reads is covered by its hold, and stays so when the writer unlocks first.
		read, err := rw.RLock(within(t, r.lk))
		if err != nil || read.Key() != r.lk.Key() {
			t.Fatalf("RLock of a writer: %v", err)
		}
		mustUnlock(t, r.lk)
		lk, err := rw.Lock(within(t, read))
		if err != nil || lk.Token() != r.lk.Token() {
			t.Fatalf("Lock within what a writer reads: %v", err)
		}
		mustUnlock(t, lk)
		if read.Check() != nil || read.Unlock(t.Context()) != nil {
			t.Error(read.Check())
		}
		kit.NothingStands(t, srv)
	})
}

func TestReentrantLocksHaveTheLimitsOfTheFirstAndTheirOwnContexts(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		most := locker.Options{Reentrant: true, MaxHold: time.Second}
		outer := mustLock(t, locker.NewMutex(p.Sess, "x").With(most))
		inner := again(t, locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true}), outer)
		<-outer.Done()
		var lost *holdfast.LostError
		if err := inner.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseMaxHold {
			t.Errorf("after MaxHold: %v", err)
		}

		outer = mustLock(t, locker.NewMutex(p.Sess, "y").With(locker.Options{Reentrant: true}))
		cancels := locker.Options{Reentrant: true, CancelOnSuspended: true}
		strict := again(t, locker.NewMutex(p.Sess, "y").With(cancels), outer)
		mild, cancel := outer.WithContext(t.Context())
		defer cancel()
		ctx, cancel := strict.WithContext(t.Context())
		defer cancel()
		p.Link.BlackHole()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), holdfast.ErrSuspended) || mild.Err() != nil || ended(strict) {
			t.Errorf("suspended: the strict context: %v, the other: %v", context.Cause(ctx), context.Cause(mild))
		}
	})
}
