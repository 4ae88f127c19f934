package locker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

func TestTreeLocksExcludeAboveAndBelow(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		lk, err := locker.NewTreeMutex(a.Sess, "billing/eu/job-7").Lock(kit.Within(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		for path, excluded := range map[string]bool{
			"billing": true, "billing/eu": true, "billing/eu/job-7": true, "billing/eu/job-7/part": true,
			"billing/eu/job-8": false, "billing/us": false, "other": false,
		} {
			other, err := locker.NewTreeMutex(b.Sess, path).TryLock(t.Context())
			if excluded != errors.Is(err, locker.ErrLocked) || !excluded && err != nil {
				t.Errorf("TryLock of %s: %v", path, err)
			}
			if err == nil {
				mustUnlock(t, other)
			}
		}
		mustUnlock(t, lk)
	})
}
