package locker_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/view"
)

func TestMinHoldOutOfRangeIsAnArgumentErrorBeforeAnythingIsSent(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		time.Sleep(kit.Prompt) // the session has its watch
		before := p.Link.Count()
		mutex := locker.NewMutex(p.Sess, "x").With
		for name, mu := range map[string]*locker.Mutex{
			"negative":       mutex(locker.Options{MinHold: -1}),
			"32 days":        mutex(locker.Options{MinHold: 32 * 24 * time.Hour}),
			"beyond MaxHold": mutex(locker.Options{MaxHold: time.Minute, MinHold: time.Minute + 1}),
			"reentrant":      mutex(locker.Options{MaxHold: time.Minute, MinHold: time.Minute + 1, Reentrant: true}),
		} {
			_, err := mu.Lock(t.Context())
			var bad *holdfast.ArgumentError
			var failed *view.AcquireError
			if !errors.As(err, &bad) || bad.Argument != "Options.MinHold" || !errors.As(err, &failed) || failed.Waited != 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		if sent := p.Link.Count(); !maps.Equal(sent, before) {
			t.Errorf("sent %v after %v", sent, before)
		}
		mustUnlock(t, mustLock(t, mutex(locker.Options{MaxHold: time.Minute, MinHold: time.Minute})))
	})
}

func TestOwnerHasALimit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		const most = 256
		for n, want := range map[int]string{most: "", most + 1: "Options.Owner"} {
			lk, err := locker.NewMutex(p.Sess, "x").With(locker.Options{Owner: strings.Repeat("x", n)}).Lock(t.Context())
			var bad *holdfast.ArgumentError
			if errors.As(err, &bad) != (want != "") || bad != nil && bad.Argument != want {
				t.Errorf("%d bytes: %v", n, err)
			} else if err == nil {
				mustUnlock(t, lk)
			}
		}
	})
}

// What is not for a kind of lock is refused, and not ignored. With replaces the options of an earlier With.
func TestOptionsOfOtherKindsOfLockAreArgumentErrors(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		locks := map[string]func(ctx context.Context, o locker.Options) error{
			"Mutex": func(ctx context.Context, o locker.Options) error {
				lk, err := locker.NewMutex(p.Sess, "x").With(locker.Options{MaxHold: -1}).With(o).Lock(ctx)
				return end(ctx, lk, err)
			},
			"RWMutex": func(ctx context.Context, o locker.Options) error {
				lk, err := locker.NewRWMutex(p.Sess, "x").With(locker.Options{MaxHold: -1}).With(o).Lock(ctx)
				return end(ctx, lk, err)
			},
			"RWMutex, reading": func(ctx context.Context, o locker.Options) error {
				lk, err := locker.NewRWMutex(p.Sess, "x").With(locker.Options{MaxHold: -1}).With(o).RLock(ctx)
				return end(ctx, lk, err)
			},
			"TreeMutex": func(ctx context.Context, o locker.Options) error {
				lk, err := locker.NewTreeMutex(p.Sess, "x").With(locker.Options{MaxHold: -1}).With(o).Lock(ctx)
				return end(ctx, lk, err)
			},
			"Set": func(ctx context.Context, o locker.Options) error {
				lk, err := locker.NewSet(p.Sess, locker.Write("x")).With(locker.Options{MaxHold: -1}).With(o).Lock(ctx)
				return end(ctx, lk, err)
			},
			"Semaphore": func(ctx context.Context, o locker.Options) error {
				_, err := locker.NewSemaphore(p.Sess, "s", 9).With(locker.Options{MaxHold: -1}).With(o).Acquire(ctx, 1)
				return err
			},
		}
		for option, c := range map[string]struct {
			opts locker.Options
			of   []string // the kinds that have it
		}{
			"Options.Owner":     {locker.Options{Owner: "a"}, slices.Collect(maps.Keys(locks))},
			"Options.MinHold":   {locker.Options{MinHold: time.Millisecond}, []string{"Mutex"}},
			"Options.Reentrant": {locker.Options{Reentrant: true}, []string{"Mutex", "RWMutex", "RWMutex, reading"}},
		} {
			for kind, lock := range locks {
				var bad *holdfast.ArgumentError
				err := lock(t.Context(), c.opts)
				refused := errors.As(err, &bad) && bad.Argument == option
				if has := slices.Contains(c.of, kind); has && err != nil || !has && !refused {
					t.Errorf("%s of a %s: %v", option, kind, err)
				}
			}
		}
	})
}

func end(ctx context.Context, lk interface{ Unlock(context.Context) error }, err error) error {
	if err != nil {
		return err
	}
	return lk.Unlock(ctx)
}
