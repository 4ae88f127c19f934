package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

var denied = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}

// grantWithNext returns a grant, and what a call in its line returns, which ends with ctx.
func grantWithNext(ctx context.Context, t *testing.T, p *process) (*Grant, <-chan *Grant) {
	t.Helper()
	g := mustAcquire(t, p.queue("x"))
	next := acquireLater(ctx, p.queue("x"))
	synctest.Wait()
	return g, next
}

// The next caller is canceled while its entry is put, and that is deleted by hand. Neither is the holder's loss.
func TestHandOffTellsWhatBecameOfItsOwnEntryOnly(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		g, next := grantWithNext(ctx, t, p)
		p.PlanOne("hand-off", etcdfake.Fate{Reply: 10 * kit.OneWay})
		done := make(chan error, 1)
		go func() { done <- g.HandOff() }() // ends below
		time.Sleep(2 * kit.OneWay)
		giveUp()
		<-next
		put := srv.Keys(entriesX)
		if len(put) != 1 || string(put[0].Key) == g.Key {
			t.Fatalf("in the queue: %v", put)
		}
		srv.Delete(string(put[0].Key))
		if err := <-done; err != nil {
			t.Errorf("HandOff: %v", err)
		}
		mustHandOff(t, mustAcquire(t, p.queue("x")))
		kit.NothingStands(t, srv)
	})
}

// etcd refuses to put the entry of the next caller, who is canceled meanwhile. The one behind goes its own way.
func TestRefusedHandOffToACanceledCallerLetsTheNextOneIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		g, next := grantWithNext(ctx, t, p)
		last := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		synctest.Wait()
		p.Plan(func(kind string, _ int) (f etcdfake.Fate) {
			switch kind {
			case "hand-off":
				f = denied
			case "remove":
				f.Request = 10 * kit.OneWay
			}
			return f
		})
		done := make(chan error, 1)
		go func() { done <- g.HandOff() }() // ends below
		time.Sleep(6 * kit.OneWay)
		if n := p.Counts(); n["hand-off"] != 1 || n["remove"] != 1 {
			t.Fatalf("sent %v: this tests nothing", n)
		}
		giveUp()
		<-next
		if err := <-done; err != nil {
			t.Errorf("HandOff: %v", err)
		}
		p.Plan(nil)
		mustHandOff(t, <-last)
		kit.NothingStands(t, srv)
	})
}

// A hand-off was carried out, its reply was lost, and another client has deleted what it has put. The second copy finds
// neither entry.
func TestHandOffThatMayHaveBeenCarriedOutIsNoLoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "hand-off" && n == 1 {
				f = etcdfake.Fate{LoseReply: true, Reply: 10 * kit.OneWay}
			}
			return f
		})
		done := make(chan error, 1)
		go func() { done <- g.HandOff() }() // ends below
		time.Sleep(2 * kit.OneWay)
		srv.Delete(string(srv.Keys(entriesX)[0].Key))
		if err := <-done; err != nil {
			t.Errorf("HandOff: %v", err)
		}
		mustHandOff(t, <-next)
		kit.NothingStands(t, srv)
	})
}

// The role of the session is withdrawn after a hand-off that was not answered. So the entry may be gone, or not.
func TestHandOffThatIsNotAnsweredAndThenRefusedIsUnknown(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind == "hand-off" && n == 1:
				f = etcdfake.Fate{LoseRequest: true}
			case kind == "hand-off" || kind == "remove":
				f = denied
			}
			return f
		})
		if err := g.HandOff(); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("HandOff: %v", err)
		}
		p.Plan(nil)
		time.Sleep(2 * time.Second)
		mustHandOff(t, <-next)
		kit.NothingStands(t, srv)
	})
}

// The hand-off was carried out, and what stands ahead of the entry that it has put cannot be read. That is the next
// caller's concern.
func TestHandOffIsDoneThoughTheNextMayNotLook(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind == "hand-off" && n == 1:
				f = etcdfake.Fate{LoseReply: true}
			case kind == "read" && n == 2: // the first one finds the entry
				f = denied
			}
			return f
		})
		if err := g.HandOff(); err != nil {
			t.Errorf("HandOff: %v", err)
		}
		if g := <-next; g != nil {
			t.Error("the next holds without a look")
		}
		p.Plan(nil)
		kit.NothingStands(t, srv)
	})
}
