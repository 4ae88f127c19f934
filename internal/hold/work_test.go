package hold_test

import (
	"testing"

	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/holdtest"
)

// What nothing asked for starts no goroutine and no timer, and allocates nothing: there is no Work.
func TestWorkThatNothingWatchesCostsNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		allocated := testing.AllocsPerRun(1000, func() {
			w := hold.NewWork(h, nil, false)
			w.Overrun(holdfast.CauseNotDrained, time.Time{})
			if w.End(); w != nil {
				t.Fatal("there is a Work")
			}
		})
		if allocated != 0 {
			t.Errorf("it allocates %v times", allocated)
		}
		holdtest.MustRelease(t, h)
	})
}
