package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The limit is made unreadable while the mark of a waiter is under way. Its caller is told that, and no other limit.
func TestLimitThatIsUnreadableWhenAWaiterFitsIsItsError(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		first, p := mustAcquire(t, start(t, srv).permits(1, 1)), start(t, srv)
		done := acquirePermit(kit.Within(t, time.Minute), p.permits(1, 1), Request{})
		kit.Queued(t, srv, permitsX, 2)
		p.PlanOne("mark", etcdfake.Fate{Request: 10 * kit.OneWay})
		mustHandOff(t, first)
		time.Sleep(4 * kit.OneWay)
		srv.Put(kit.LimitX, "no number")
		if r := <-done; r.err == nil || errors.As(r.err, new(*holdfast.LimitError)) {
			t.Errorf("Acquire: %v", r.err)
		}
		if n := p.Counts()["mark"]; n == 0 {
			t.Error("no mark was sent: this tests nothing")
		}
	})
}

// It has to wait for what was revoked, so it is not admitted as it leaves.
func TestPermitThatGivesUpInItsLockDelayAsksForNothingMore(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 1, 1)
		ahead, p := kit.JoinPermit(t, srv, permitsX, 1), start(t, srv)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		done := acquirePermit(ctx, p.permits(1, 1), Request{})
		kit.Queued(t, srv, permitsX, 2)
		ahead.Revoke()
		time.Sleep(kit.LockDelay / 2)
		p.Plan(nil)
		giveUp()
		if r := <-done; !errors.Is(r.err, context.Canceled) {
			t.Errorf("Acquire: %v", r.err)
		}
		if n := p.Counts(); n["mark"] != 1 || n["remove"] != 1 { // by which it passes on what it has waited for
			t.Errorf("sent %v", n)
		}
	})
}
