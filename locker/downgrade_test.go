package locker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/locker"
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
			var failed *locker.AcquireError
			if err := call(); !errors.As(err, &failed) || failed.Place.Ahead != 1 || failed.Place.Holder.Key != lk.Key() {
				t.Errorf("%s: %v", name, err)
			}
		}
		mustUnlock(t, lk.Lock)
	})
}
