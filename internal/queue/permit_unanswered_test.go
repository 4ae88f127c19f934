package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// A put has no reply, and by the time that its entry is found the limit was raised. The waiter behind, which has queued
// before that, waits for a mark.
func TestLimitThatIsRaisedBeforeAPermitIsFoundWakesTheOneBehind(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		first, p, behind := holdtest.Start(t, srv), holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, first.Permits(1, 1))
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind == "enqueue" && n == 1:
				f.LoseReply = true
			case kind == "read":
				f.Request = time.Second
			}
			return f
		})
		found := holdtest.AcquireLater(ctx, p.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		waits := holdtest.AcquireLater(ctx, behind.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 3)
		kit.SetLimit(t, srv, 3, 3)
		r := <-found
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		select {
		case b := <-waits:
			if b.Err != nil {
				t.Fatal(b.Err)
			}
			holdtest.MustRelease(t, b.H)
		case <-time.After(time.Minute):
			t.Error("the one behind waits, and a permit is free")
		}
		holdtest.MustRelease(t, r.H)
		holdtest.MustRelease(t, h)
	})
}
