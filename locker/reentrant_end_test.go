package locker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestLossEndsAllLocksOfAHoldAndTheNextLockIsAnother(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustLock(t, mu)
		inner := again(t, mu, outer)
		released := again(t, mu, outer)
		mustUnlock(t, released)
		p.Suspend(time.Minute) // no timer fires: what is said now is by the clock
		if err := inner.Unlock(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Unlock of an inner lock: %v", err)
		}
		var lost *holdfast.LostError
		if err := outer.Check(); !errors.As(err, &lost) || lost.Token != outer.Token() {
			t.Errorf("the outer lock: %v", err)
		}
		if !ended(outer) || !ended(inner) || !errors.Is(inner.Check(), lost) {
			t.Errorf("the inner lock: %v", inner.Check())
		}
		if err := errors.Join(released.Check(), released.Unlock(t.Context())); errors.Is(err, holdfast.ErrLost) {
			t.Errorf("a lock that had been unlocked before: %v", err)
		}
		next, err := mu.Lock(within(t, outer))
		if err != nil || next.Token() <= outer.Token() {
			t.Fatalf("the next lock: %v", err)
		}
		if err := outer.Unlock(t.Context()); !errors.Is(err, lost) || next.Check() != nil {
			t.Errorf("Unlock of the outer lock: %v; the next lock: %v", err, next.Check())
		}
	})
}

func TestRefusedWriteOfAnInnerLockEndsTheOuterOne(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustLock(t, mu)
		inner := again(t, mu, outer)
		srv.Delete(outer.Key())
		if _, err := etcdfence.NewWriter(inner).Put(t.Context(), "k", "v"); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a write without the entry: %v", err)
		}
		if !errors.Is(outer.Check(), holdfast.ErrLost) {
			t.Errorf("the outer lock: %v", outer.Check())
		}
	})
}

// The name is free when the last of them is unlocked; until then a call of theirs would wait for itself.
func TestKickedHoldIsNotSharedAndItsLastUnlockFreesTheName(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustLock(t, mu)
		inner := again(t, mu, outer)
		ops := admin.New(srv.Client(t), admin.Options{})
		if err := ops.Kick(t.Context(), holdfast.KindLock, "x", outer.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		<-inner.Done()
		var kick *holdfast.KickError
		if _, err := mu.Lock(within(t, outer)); !errors.Is(err, holdfast.ErrReentrant) || !errors.As(err, &kick) {
			t.Errorf("Lock with a context of a lock that was kicked: %v", err)
		}
		for _, lk := range []*locker.Lock{outer, inner} {
			if len(kit.Standing(srv, "x")) != 1 {
				t.Error("the entry is gone before the last lock was unlocked")
			}
			if err := lk.Unlock(t.Context()); !errors.As(err, &kick) {
				t.Errorf("Unlock: %v", err)
			}
		}
		kit.NothingStands(t, srv)
	})
}

func TestReentrantLockWithADeadContextGivesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		lk := mustLock(t, mu)
		ctx, cancel := context.WithCancel(within(t, lk))
		cancel()
		for _, lock := range []func(context.Context) (*locker.Lock, error){mu.Lock, mu.TryLock} {
			if _, err := lock(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
		}
		mustUnlock(t, lk)
		kit.NothingStands(t, srv)
	})
}

// duringErr is a context that calls f when it is asked for its error.
type duringErr struct {
	context.Context
	f func()
}

func (c duringErr) Err() error { c.f(); return c.Context.Err() }

func TestReentrantLockQueuesAgainIfTheHoldEndsMeanwhile(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *kit.Process, lk *locker.Lock){
		"unlocked": func(t *testing.T, _ *kit.Process, lk *locker.Lock) { mustUnlock(t, lk) },
		"lost":     func(_ *testing.T, p *kit.Process, _ *locker.Lock) { p.Suspend(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
				outer := mustLock(t, mu)
				// The call has found the hold when it looks whether its context has ended.
				once := sync.OnceFunc(func() { end(t, p, outer) })
				lk, err := mu.Lock(duringErr{within(t, outer), once})
				if err != nil || lk.Token() <= outer.Token() || lk.Check() != nil || !owns(srv, lk) {
					t.Fatalf("Lock: %v", err)
				}
				mustUnlock(t, lk)
			})
		})
	}
}

// releasing calls f when the span of a release starts: the last Lock has ended, the hold has not.
type releasing struct {
	sdktrace.SpanProcessor
	f func()
}

func (p releasing) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	if s.Name() == "holdfast.release" {
		p.f()
	}
}

func TestReentrantLockDuringTheLastUnlockQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var during func()
		p := kit.Start(t, srv, func(o *session.Options) {
			spans := releasing{sdktrace.NewSimpleSpanProcessor(tracetest.NewNoopExporter()), func() { during() }}
			o.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		})
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		outer := mustLock(t, mu)
		ctx, next := within(t, outer), make(chan result, 1)
		during = func() {
			during = func() {}
			go func() { // the test receives from next
				lk, err := mu.Lock(ctx)
				next <- result{lk, err}
			}()
			synctest.Wait()
		}
		mustUnlock(t, outer)
		r := <-next
		if r.err != nil || r.lk.Token() <= outer.Token() || r.lk.Check() != nil || !owns(srv, r.lk) {
			t.Fatalf("Lock: %v", r.err)
		}
		mustUnlock(t, r.lk)
	})
}

// A call that comes as the last lock is unlocked holds by the old entry or by a new one, never by none.
func TestReentrantLocksOfManyGoroutinesAreHeldOrQueueAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		for range 20 {
			outer := mustLock(t, mu)
			ctx := within(t, outer)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { // joined below
					for range 4 {
						lk, err := mu.Lock(ctx)
						if err != nil || lk.Check() != nil || !owns(srv, lk) {
							t.Errorf("Lock: %v", err)
							return
						}
						mustUnlock(t, lk)
					}
				})
			}
			mustUnlock(t, outer)
			all.Wait()
			kit.NothingStands(t, srv)
		}
	})
}
