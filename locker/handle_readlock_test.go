package locker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// A guard that compares tokens does not compile with a ReadLock, because it is no Source.
func TestReadLockHasNoTokenAndCanBeFencedInEtcd(t *testing.T) {
	if _, is := any((*locker.ReadLock)(nil)).(fencing.Source); is {
		t.Error("a ReadLock is a fencing.Source")
	}
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := mustRLock(t, locker.NewRWMutex(p.Sess, "x"))
		w := etcdfence.NewWriter(lk)
		if _, err := w.Put(t.Context(), "k", "v"); err != nil {
			t.Error(err)
		}
		srv.Delete(lk.Key())
		if _, err := w.Put(t.Context(), "k", "late"); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a write without the entry: %v", err)
		}
		if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the ReadLock after a refused write: %v", err)
		}
		if kvs := srv.Keys("k"); len(kvs) != 1 || string(kvs[0].Value) != "v" {
			t.Errorf("written: %v", kvs)
		}
	})
}

func TestReadLockOfAnInnerContextHidesTheOuterHolder(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(p.Sess, "outer"))
		ctx, cancel := lk.WithContext(t.Context())
		defer cancel()
		err := locker.NewRWMutex(p.Sess, "x").RDo(ctx, func(ctx context.Context, _ *locker.ReadLock) error {
			if h, found := fencing.FromContext(ctx); found {
				t.Errorf("the context of a reader carries the holder of %s", h.Name())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		mustUnlock(t, lk)
	})
}
