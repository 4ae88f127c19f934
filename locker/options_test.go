package locker_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
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
