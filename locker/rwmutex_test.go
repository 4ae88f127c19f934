package locker_test

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/view"
)

func mustRLock(t *testing.T, mu *locker.RWMutex) *locker.ReadLock {
	t.Helper()
	lk, err := mu.RLock(kit.Within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

func TestZeroRWMutexGivesAnErrorAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	zero := &locker.RWMutex{}
	reads := func(context.Context, *locker.ReadLock) error { return nil }
	writes := func(context.Context, *locker.Lock) error { return nil }
	for what, err := range map[string]error{
		"RLock":    func() error { _, err := zero.RLock(t.Context()); return err }(),
		"TryRLock": func() error { _, err := zero.With(locker.Options{}).TryRLock(t.Context()); return err }(),
		"Lock":     func() error { _, err := zero.Lock(t.Context()); return err }(),
		"RDo":      zero.RDo(t.Context(), reads),
		"TryRDo":   zero.TryRDo(t.Context(), reads),
		"Do":       zero.Do(t.Context(), writes),
	} {
		var argument *holdfast.ArgumentError
		if !errors.As(err, &argument) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// An RWMutex and a Mutex of one name are one lock.
func TestReadersExcludeAMutexOfTheirName(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		rw, mu := locker.NewRWMutex(a.Sess, "x"), locker.NewMutex(b.Sess, "x")
		first, second := mustRLock(t, rw), mustRLock(t, rw)
		_, err := mu.TryLock(t.Context())
		var failed *view.AcquireError
		if !errors.Is(err, locker.ErrLocked) || !errors.As(err, &failed) ||
			failed.Place.Holder.Key != first.Key() || failed.Place.Ahead != 2 {
			t.Errorf("TryLock of a Mutex beside two readers: %v, place %+v", err, failed.Place)
		}
		writer := lockLater(kit.Within(t, time.Minute), mu)
		kit.Queued(t, srv, kit.Entries("x"), 3)
		holderIsFirst := func(what string, err error) {
			t.Helper()
			var failed *view.AcquireError
			if !errors.As(err, &failed) || failed.Place.Holder.Key != first.Key() || failed.Place.Ahead != 2 {
				t.Errorf("%s behind a writer that waits for readers: %v", what, err)
			}
		}
		_, err = rw.TryRLock(t.Context())
		if !errors.Is(err, locker.ErrLocked) {
			t.Errorf("TryRLock beside a writer that waits: %v", err)
		}
		holderIsFirst("TryRLock", err)
		_, err = rw.RLock(kit.Within(t, time.Second))
		holderIsFirst("RLock", err)
		for _, lk := range []*locker.ReadLock{first, second} {
			if err := lk.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		r := <-writer
		if r.err != nil || !owns(srv, r.lk) {
			t.Fatal(r.err)
		}
		mustUnlock(t, r.lk)
		if lk, err := rw.TryRLock(t.Context()); err != nil || lk.Unlock(t.Context()) != nil {
			t.Errorf("TryRLock of a free lock: %v", err)
		}
	})
}

func TestRDoRunsReadersTogetherAndTellsEachOfItsLoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		var together atomic.Int32
		read := func(p *kit.Process) <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- locker.NewRWMutex(p.Sess, "x").RDo(t.Context(), func(ctx context.Context, lk *locker.ReadLock) error {
					together.Add(1)
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			return done
		}
		one, two := read(a), read(b)
		synctest.Wait()
		time.Sleep(time.Minute)
		if n := together.Load(); n != 2 {
			t.Fatalf("%d readers run, want 2", n)
		}
		srv.Revoke(a.Sess.Lease())
		err := <-one
		var lost *holdfast.LostError
		if !errors.As(err, &lost) || lost.Name != "x" || lost.Token != 0 || lost.Cause != holdfast.CauseRevoked {
			t.Errorf("a reader whose lease is revoked: %v", err)
		}
		select {
		case err := <-two:
			t.Errorf("the other reader ended: %v", err)
		default:
		}
		if err := b.Sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-two; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("a reader whose session is closed: %v", err)
		}
	})
}

// A writer that waits in between would make both wait for ever.
func TestReaderThatAsksAgainIsReentrant(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		rw := locker.NewRWMutex(p.Sess, "x")
		asks := map[string]func(context.Context) error{
			"RLock":    func(ctx context.Context) error { _, err := rw.RLock(ctx); return err },
			"TryRLock": func(ctx context.Context) error { _, err := rw.TryRLock(ctx); return err },
			"Lock":     func(ctx context.Context) error { _, err := rw.Lock(ctx); return err },
			"TryLock":  func(ctx context.Context) error { _, err := rw.TryLock(ctx); return err },
		}
		other := locker.NewRWMutex(p.Sess, "y")
		err := rw.RDo(t.Context(), func(ctx context.Context, _ *locker.ReadLock) error {
			return other.RDo(ctx, func(ctx context.Context, _ *locker.ReadLock) error {
				for what, ask := range asks {
					if err := ask(ctx); !errors.Is(err, holdfast.ErrReentrant) {
						t.Errorf("%s within RDo: %v", what, err)
					}
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		err = rw.Do(t.Context(), func(ctx context.Context, _ *locker.Lock) error {
			for what, ask := range asks {
				if err := ask(ctx); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("%s within Do: %v", what, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestMinHoldOfAWriterKeepsReadersOut(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		rw := locker.NewRWMutex(p.Sess, "x")
		mustUnlock(t, mustLock(t, locker.NewMutex(p.Sess, "x").With(locker.Options{MinHold: time.Hour})))
		if _, err := rw.TryRLock(t.Context()); !errors.Is(err, locker.ErrLocked) {
			t.Errorf("TryRLock within a writer's MinHold: %v", err)
		}
	})
}

func TestReaderCostsTheRequestsOfAMutex(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		time.Sleep(20 * kit.OneWay) // the session has set the watch of its session key
		rw := locker.NewRWMutex(p.Sess, "x")
		for name, step := range map[string]struct {
			f    func() error
			want map[string]int
		}{
			"RLock and Unlock": {func() error {
				return rw.RDo(t.Context(), func(context.Context, *locker.ReadLock) error { return nil })
			}, map[string]int{"enqueue": 1, "remove": 1}},
			"TryRLock and Unlock": {func() error {
				return rw.TryRDo(t.Context(), func(context.Context, *locker.ReadLock) error { return nil })
			}, map[string]int{"read": 1, "enqueue": 1, "remove": 1}},
		} {
			p.Plan(nil)
			if err := step.f(); err != nil {
				t.Fatal(err)
			}
			if got := p.Counts(); !maps.Equal(got, step.want) {
				t.Errorf("%s sent %v, want %v", name, got, step.want)
			}
		}
	})
}
