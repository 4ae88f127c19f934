package locker_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestMinHoldOutOfRangeIsAnArgumentErrorBeforeAnythingIsSent(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		time.Sleep(kit.Prompt) // the session has its watch
		before := p.Link.Count()
		limited := locker.NewMutex(p.Sess, "x").With(locker.Options{MaxHold: time.Minute})
		for name, mu := range map[string]*locker.Mutex{
			"negative":       locker.NewMutex(p.Sess, "x").WithMinHold(-1),
			"32 days":        locker.NewMutex(p.Sess, "x").WithMinHold(32 * 24 * time.Hour),
			"beyond MaxHold": limited.WithMinHold(time.Minute + 1),
			"with reentry":   limited.WithMinHold(time.Minute + 1).WithReentry(),
		} {
			_, err := mu.Lock(t.Context())
			var bad *holdfast.ArgumentError
			var failed *locker.AcquireError
			if !errors.As(err, &bad) || bad.Argument != "minHold" || !errors.As(err, &failed) || failed.Waited != 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		if sent := p.Link.Count(); !maps.Equal(sent, before) {
			t.Errorf("sent %v after %v", sent, before)
		}
		mustUnlock(t, mustLock(t, limited.WithMinHold(time.Minute)))
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

// A second With adds to the first: what that has set is still refused.
func TestWithAddsToTheOptionsOfAnEarlierWith(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		bad, more := locker.Options{MaxHold: -1}, locker.Options{Owner: "a"}
		for kind, lock := range map[string]func(ctx context.Context) error{
			"Mutex": func(ctx context.Context) error {
				_, err := locker.NewMutex(p.Sess, "x").With(bad).With(more).Lock(ctx)
				return err
			},
			"RWMutex": func(ctx context.Context) error {
				_, err := locker.NewRWMutex(p.Sess, "x").With(bad).With(more).Lock(ctx)
				return err
			},
			"RWMutex, reading": func(ctx context.Context) error {
				_, err := locker.NewRWMutex(p.Sess, "x").With(bad).With(more).RLock(ctx)
				return err
			},
			"TreeMutex": func(ctx context.Context) error {
				_, err := locker.NewTreeMutex(p.Sess, "x").With(bad).With(more).Lock(ctx)
				return err
			},
			"Set": func(ctx context.Context) error {
				_, err := locker.NewSet(p.Sess, locker.Write("x")).With(bad).With(more).Lock(ctx)
				return err
			},
			"Semaphore": func(ctx context.Context) error {
				_, err := locker.NewSemaphore(p.Sess, "x", 1).With(bad).With(more).Acquire(ctx, 1)
				return err
			},
		} {
			var argument *holdfast.ArgumentError
			if err := lock(t.Context()); !errors.As(err, &argument) || argument.Argument != "Options.MaxHold" {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}
