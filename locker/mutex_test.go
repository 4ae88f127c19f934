package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
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

// Scenario 12. Two processes that call themselves the same are two contenders.
func TestProcessesOfOneOwnerExcludeEachOther(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		same := locker.Options{Owner: "worker"}
		lk := mustLock(t, locker.NewMutex(a.Sess, "x").With(same))
		waiter := lockLater(t.Context(), locker.NewMutex(b.Sess, "x").With(same))
		kit.Queued(t, srv, kit.Entries("x"), 2)
		time.Sleep(time.Hour)
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
