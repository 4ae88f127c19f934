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
		for _, o := range []locker.Options{
			{MinHold: -1},
			{MinHold: 32 * 24 * time.Hour},
			{MinHold: time.Minute + 1, MaxHold: time.Minute},
		} {
			_, err := locker.NewMutex(p.Sess, "x").With(o).Lock(t.Context())
			var bad *holdfast.ArgumentError
			var failed *locker.AcquireError
			if !errors.As(err, &bad) || bad.Argument != "Options.MinHold" || !errors.As(err, &failed) || failed.Waited != 0 {
				t.Errorf("%+v: %v", o, err)
			}
		}
		if sent := p.Link.Count(); !maps.Equal(sent, before) {
			t.Errorf("sent %v after %v", sent, before)
		}
		equal := locker.Options{MinHold: time.Minute, MaxHold: time.Minute}
		mustUnlock(t, mustLock(t, locker.NewMutex(p.Sess, "x").With(equal)))
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
