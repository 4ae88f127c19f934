package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestPermitSaysWhatItIs(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		got := mustPermit(t, locker.NewSemaphore(p.Sess, "uploads/eu", 3), 2)
		kvs := srv.Keys(kit.Permits("uploads/eu"))
		if len(kvs) != 1 || string(kvs[0].Key) != got.Key() || got.AcquiredRevision() != kvs[0].CreateRevision {
			t.Errorf("key %s, revision %d, in etcd %v", got.Key(), got.AcquiredRevision(), kvs)
		}
		if got.Name() != "uploads/eu" || got.Weight() != 2 || got.Lease() != p.Sess.Lease() || got.Check() != nil {
			t.Errorf("%s, weight %d, lease %x, %v", got.Name(), got.Weight(), got.Lease(), got.Check())
		}
		ctx, cancel := got.WithContext(t.Context())
		defer cancel()
		if _, ok := fencing.FromContext(ctx); ok {
			t.Error("its context carries a holder")
		}
		mustGiveBack(t, got)
		if err := context.Cause(ctx); !errors.Is(err, holdfast.ErrReleased) {
			t.Error(err)
		}
		if err := got.Check(); !errors.Is(err, holdfast.ErrReleased) {
			t.Error(err)
		}
		select {
		case <-got.Done():
		default:
			t.Error("Done is open")
		}
	})
}

func TestFencedWriteByAPermit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := mustPermit(t, locker.NewSemaphore(kit.Start(t, srv).Sess, "x", 1), 1)
		w := etcdfence.NewWriter(p)
		if _, err := w.Put(t.Context(), "data", "1"); err != nil {
			t.Fatal(err)
		}
		srv.Delete(p.Key())
		if _, err := w.Put(t.Context(), "data", "2"); !errors.Is(err, fencing.ErrStale) && !errors.Is(err, holdfast.ErrLost) {
			t.Error(err)
		}
		if err := p.Check(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the refused write did not end it: %v", err)
		}
		if string(srv.Keys("data")[0].Value) != "1" {
			t.Error("written without a permit")
		}
	})
}

func TestPermitIsLostAfterMaxHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sem := locker.NewSemaphore(kit.Start(t, srv).Sess, "x", 1)
		p := mustPermit(t, sem.With(locker.Options{MaxHold: time.Minute}), 1)
		time.Sleep(40 * time.Second)
		if err := p.Check(); err != nil {
			t.Error(err)
		}
		<-p.Done()
		var lost *holdfast.LostError
		if err := p.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseMaxHold ||
			lost.Kind != holdfast.KindSemaphore || !strings.HasPrefix(err.Error(), `semaphore "x" lost`) {
			t.Errorf("%v", err)
		}
		mustGiveBack(t, mustPermit(t, sem, 1))
	})
}

func TestWorkOfAPermitIsCanceledOnSuspensionIfAsked(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		sem := locker.NewSemaphore(p.Sess, "x", 1).With(locker.Options{CancelOnSuspended: true})
		err := sem.Do(t.Context(), 1, func(ctx context.Context, _ *locker.Permit) error {
			p.Link.Cut()
			<-ctx.Done()
			p.Heal()
			return context.Cause(ctx)
		})
		if !errors.Is(err, holdfast.ErrSuspended) {
			t.Error(err)
		}
	})
}
