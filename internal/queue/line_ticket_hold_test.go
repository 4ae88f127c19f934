package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Several leases are revoked at once, the waiter's among them. The holder that it waited for
// may not have been told of its own loss yet.
func TestAttemptsThatLostTheirLeaseWaitForTheLockDelayOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		ctx := kit.Within(t, time.Minute)
		line := []<-chan holdtest.Result{holdtest.AcquireLater(ctx, p.Queue("x"))}
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		for range 3 {
			line = append(line, holdtest.AcquireLater(ctx, p.Queue("x")))
			time.Sleep(kit.OneWay)
		}
		ahead.Revoke()
		srv.Revoke(p.Sess.Lease())
		r := holdtest.Granted(t, srv, line[0])
		holdtest.NotBefore(t, srv, r, kit.LockDelay)
		first := r.At
		for _, next := range line[1:] {
			holdtest.MustRelease(t, r.H)
			r = holdtest.Granted(t, srv, next)
		}
		if took := r.At.Sub(first); took > kit.Prompt {
			t.Errorf("the others in the line held after %v: the first has waited for all of them", took)
		}
	})
}

// A hand-off passes on what the head has seen: the delay of the next one counts from that.
func TestHandOffInADelayPassesOnWhenItBegan(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		head := holdtest.AcquireLater(ctx, p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(kit.OneWay)
		ahead.Revoke()
		revoked := time.Now()
		time.Sleep(kit.LockDelay / 2)
		giveUp()
		if r := <-head; r.Err == nil {
			t.Fatal("granted before the lock delay")
		}
		r := holdtest.Granted(t, srv, next)
		if took := r.At.Sub(revoked); took < kit.LockDelay || took > kit.LockDelay+kit.Prompt {
			t.Errorf("granted %v after the revocation", took)
		}
		holdtest.MustRelease(t, r.H)
		kit.NothingStands(t, srv)
	})
}

// An attempt begins while the session has no lease, and the session loses the next lease,
// too.
func TestAttemptThatBeganWithoutALeaseAndLosesTheNextIsDelayed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		lost := p.Host.Lease()
		lost.Lose(holdfast.CauseExpired, nil)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		if p.Host.Lease() == lost {
			t.Fatal("no lease has followed")
		}
		second := p.Host.Lease()
		srv.Revoke(second.ID())
		for p.Host.Lease() == second {
			time.Sleep(time.Millisecond)
		}
		ahead.Revoke() // before the new entry is there
		holdtest.NotBefore(t, srv, holdtest.Granted(t, srv, done), kit.LockDelay)
	})
}
