package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/view"
)

func TestDowngradeLetsNoWriterInBetween(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		lk, err := locker.NewRWMutex(a.Sess, "x").LockDowngradable(ctx)
		if err != nil {
			t.Fatal(err)
		}
		writer := lockLater(ctx, locker.NewMutex(b.Sess, "x"))
		kit.Queued(t, srv, kit.Entries("x"), 3)
		rd, err := lk.Downgrade(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lk.Check(); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("Check of the Lock after Downgrade: %v", err)
		}
		time.Sleep(2 * kit.LockDelay)
		select {
		case r := <-writer:
			t.Fatalf("a writer was granted beside the reader: %v", r.err)
		default:
		}
		if err := rd.Check(); err != nil {
			t.Errorf("Check of the ReadLock: %v", err)
		}
		if err := lk.Unlock(ctx); err != nil {
			t.Errorf("Unlock after Downgrade: %v", err)
		}
		if err := rd.Unlock(ctx); err != nil {
			t.Error(err)
		}
		r := <-writer
		if r.err != nil {
			t.Fatal(r.err)
		}
		mustUnlock(t, r.lk)
	})
}

func TestDoDowngradableHoldsThroughBothFunctions(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		theirs := locker.NewRWMutex(b.Sess, "x")
		var writer <-chan result
		var wctx context.Context
		failed := errors.New("failed to read")
		err := locker.NewRWMutex(a.Sess, "x").DoDowngradable(ctx, func(ctx context.Context, lk *locker.Lock) error {
			wctx = ctx
			if h, _ := fencing.FromContext(ctx); h != fencing.Holder(lk) || lk.Check() != nil {
				t.Errorf("write has the lock in its context: %v; %v", h, lk.Check())
			}
			if _, err := theirs.TryRLock(t.Context()); !errors.Is(err, locker.ErrLocked) {
				t.Errorf("a reader beside write: %v", err)
			}
			writer = lockLater(kit.Within(t, time.Minute), theirs)
			kit.Queued(t, srv, kit.Entries("x"), 3)
			return nil
		}, func(ctx context.Context, rd *locker.ReadLock) error {
			if rd.Check() != nil || ctx.Err() != nil || !errors.Is(context.Cause(wctx), holdfast.ErrReleased) {
				t.Errorf("in read: %v, %v; write's context: %v", rd.Check(), ctx.Err(), context.Cause(wctx))
			}
			time.Sleep(2 * kit.LockDelay)
			if len(writer) != 0 {
				t.Error("a writer was granted before read, or beside it")
			}
			return failed
		})
		if err != failed {
			t.Errorf("the error is not that of read: %v", err)
		}
		r := <-writer
		if r.err != nil {
			t.Fatalf("a writer afterwards: %v", r.err)
		}
		mustUnlock(t, r.lk)

		err = theirs.DoDowngradable(ctx, func(context.Context, *locker.Lock) error { return failed },
			func(context.Context, *locker.ReadLock) error {
				t.Error("read was called after write had failed")
				return nil
			})
		if err != failed || len(srv.Keys(kit.Entries("x"))) != 0 {
			t.Errorf("write failed: %v; entries %v", err, srv.Keys(kit.Entries("x")))
		}
	})
}

// As with a Lock: a caller that holds the name does not wait for itself.
func TestContextOfADowngradableLockSaysThatItHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		within := kit.Within(t, time.Minute)
		m := locker.NewRWMutex(kit.Start(t, srv).Sess, "x")
		lk, err := m.LockDowngradable(within)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := lk.WithContext(within)
		defer cancel()
		for _, ctx := range []context.Context{ctx, fencing.NewContext(within, lk)} {
			if _, err := m.Lock(ctx); !errors.Is(err, holdfast.ErrReentrant) {
				t.Errorf("Lock within: %v", err)
			}
			if h, _ := fencing.FromContext(ctx); h.Token() != lk.Token() || h.Name() != "x" {
				t.Errorf("the context carries %v", h)
			}
		}
		mustUnlock(t, lk)
	})
}

// A lock that can be downgraded has two entries, and is one ahead.
func TestDowngradableLockIsOneAhead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := kit.Start(t, srv), kit.Start(t, srv)
		lk, err := locker.NewRWMutex(other.Sess, "x").LockDowngradable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"TryLock":  func() error { _, err := locker.NewMutex(p.Sess, "x").TryLock(t.Context()); return err },
			"Lock":     func() error { _, err := locker.NewMutex(p.Sess, "x").Lock(kit.Within(t, time.Second)); return err },
			"TryRLock": func() error { _, err := locker.NewRWMutex(p.Sess, "x").TryRLock(t.Context()); return err },
		} {
			var failed *view.AcquireError
			if err := call(); !errors.As(err, &failed) || failed.Place.Ahead != 1 || failed.Place.Holder.Key != lk.Key() {
				t.Errorf("%s: %v", name, err)
			}
		}
		mustUnlock(t, lk)
	})
}
