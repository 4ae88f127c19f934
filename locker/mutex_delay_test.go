package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// The name is free, and its last holder may not know yet that it has lost it. Who tries is told both: that it did not
// get the lock, and why.
func TestTryThatEndsInTheLockDelayIsLockedAndSaysWhy(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		for name, try := range map[string]func(ctx context.Context) error{
			"TryLock": func(ctx context.Context) error { _, err := locker.NewMutex(p.Sess, "x").TryLock(ctx); return err },
			"TryDo": func(ctx context.Context) error {
				return locker.NewMutex(p.Sess, "x").TryDo(ctx, func(context.Context, *locker.Lock) error { return nil })
			},
			"TryRLock": func(ctx context.Context) error { _, err := locker.NewRWMutex(p.Sess, "x").TryRLock(ctx); return err },
		} {
			kit.Join(t, srv, kit.Entries("x")).Revoke()
			ctx, cancel := context.WithTimeout(t.Context(), kit.LockDelay/2)
			err := try(ctx)
			cancel()
			if !errors.Is(err, locker.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if text := "the last holder has gone without a release"; err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v does not say %q", name, err, text)
			}
			time.Sleep(kit.LockDelay)
			if err := try(t.Context()); err != nil {
				t.Errorf("%s, a second time: %v", name, err)
			}
			if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
				t.Error(err)
			}
			p = kit.Start(t, srv)
		}
	})
}
