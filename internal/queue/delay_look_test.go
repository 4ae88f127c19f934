package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/view"
)

// acquireTold is acquireLater for a call that counts how often it is told that it is the first.
func acquireTold(t *testing.T, q *Queue) (done <-chan *Grant, first *atomic.Int32) {
	t.Helper()
	grants := make(chan *Grant, 1)
	first = new(atomic.Int32)
	ctx := kit.Within(t, time.Minute)
	go func() { // ends with ctx
		got, _ := Set{q}.Acquire(ctx, Request{OnWait: func(p view.Place) {
			if p.Ahead == 0 {
				first.Add(1)
			}
		}})
		grants <- append(got, nil)[0]
	}()
	return grants, first
}

// Some looks happen during the delay. None tells anything new.
func TestWaiterIsToldOfADelayOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, ahead := start(t, srv), kit.Join(t, srv, entriesX)
		done, first := acquireTold(t, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		ahead.Vanish()
		mustHandOff(t, <-done)
		if n := first.Load(); n != 1 {
			t.Errorf("told %d times that it is the first", n)
		}
	})
}

// The one ahead died while it waited itself, so there is no delay to tell of.
func TestWaiterIsNotToldOfADelayThatIsNone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, front, middle := start(t, srv), kit.Join(t, srv, entriesX), kit.Join(t, srv, entriesX)
		done, first := acquireTold(t, p.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
		middle.Revoke()
		time.Sleep(20 * kit.OneWay)
		p.Plan(nil)
		front.Release()
		mustHandOff(t, <-done)
		if n := p.Counts()["clear"]; n != 1 || first.Load() != 0 {
			t.Errorf("%d clears; told %d times that it is the first", n, first.Load())
		}
	})
}

// A set waits for two queues, and each look of one covers the other. What is free is not looked at again.
func TestLooksOfASetDuringADelayCoverAllItsQueues(t *testing.T) {
	for name, held := range map[string][]string{"both": {"x", "y"}, "the first": {"x"}, "the second": {"y"}} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				for _, lock := range held {
					kit.Join(t, srv, kit.Entries(lock)).Vanish() // its session lives, so there are several looks
				}
				done := make(chan []*Grant, 1)
				go func() { // ends with its context
					grants, _ := Set{p.queue("x"), p.queue("y")}.Acquire(kit.Within(t, time.Minute), Request{})
					done <- grants
				}()
				time.Sleep(lookAgain / 2)
				p.Plan(nil)
				time.Sleep(5 * lookAgain)
				if n := p.Counts()["read"]; n != 5 {
					t.Errorf("%d looks in 5 s", n)
				}
				grants := <-done
				if len(grants) != 2 {
					t.Fatal("not granted")
				}
				if err := RemoveNow(t.Context(), grants, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// One look reads so many claims, and there are more. When those are cleared, another look follows.
func TestClearLooksAgainIfALookHasNotReadAllClaims(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		callers := Set{p.queue("x"), p.queue("y")}.join(Request{})
		a := newAttempt(callers, p.Host.Lease())
		if err := a.put(t.Context()); err != nil {
			t.Fatal(err)
		}
		e := a.entries[0]
		e.more = true
		p.Plan(nil)
		if err := a.clear(t.Context()); err != nil || !e.isFree() || p.Counts()["read"] != 1 {
			t.Errorf("%v; free: %v; sent %v", err, e.isFree(), p.Counts())
		}
		giveUp(callers, a)
	})
}

// As many claims as one Txn has room for are cleared by one.
func TestClearDeletesAsManyClaimsAsATxnHasRoomFor(t *testing.T) {
	const perClear = 99 // of MaxOps, 1 is for the own entry
	for n, clears := range map[int]int{perClear: 1, perClear + 1: 2} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			var gone []*kit.Peer
			for range n {
				gone = append(gone, kit.Join(t, srv, entriesX))
			}
			for _, peer := range gone {
				peer.Revoke()
			}
			p := start(t, srv)
			p.Plan(nil)
			g := mustAcquire(t, p.queue("x"))
			if sent := p.Counts()["clear"]; sent != clears {
				t.Errorf("%d claims: %d clears, want %d", n, sent, clears)
			}
			mustHandOff(t, g)
		})
	}
}

// What is free stays free, so a look reads nothing more of it than that the own entry stands.
func TestLookOfASetReadsNothingAheadOfWhatIsFree(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		callers := Set{p.queue("x"), p.queue("y")}.join(Request{})
		a := newAttempt(callers, p.Host.Lease())
		if err := a.put(t.Context()); err != nil {
			t.Fatal(err)
		}
		x, most := a.entries[0], 0
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if txn, ok := c.Request.(*pb.TxnRequest); ok && kit.KindOf(c) == "read" {
				most = max(most, len(txn.Success))
			}
			return f
		})
		x.more = true // as if not all claims were read
		if err := x.look(t.Context()); err != nil || !x.isFree() {
			t.Errorf("%v; free: %v", err, x.isFree())
		}
		if want := len(a.entries) + 2; most != want { // the nearest entry, and the claims
			t.Errorf("the look reads %d times, want %d", most, want)
		}
		giveUp(callers, a)
	})
}

// The role of the session may not delete claims. That is told, by a call that does not wait, too.
func TestClearThatIsRefusedEndsTheCall(t *testing.T) {
	for name, call := range map[string]func(Set, context.Context, Request) ([]*Grant, error){
		"Acquire": Set.Acquire, "TryAcquire": Set.TryAcquire,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				kit.SetLimit(t, srv, 1)
				kit.JoinPermit(t, srv, permitsX, 1).Revoke()
				p.PlanAll("clear", denied)
				_, err := call(Set{p.permits(1, 1)}, kit.Within(t, time.Minute), Request{})
				if status.Code(err) != codes.PermissionDenied || errors.Is(err, ErrInDelay) || p.Counts()["clear"] != 1 {
					t.Errorf("%v; sent %v", err, p.Counts())
				}
				p.Plan(nil)
			})
		})
	}
}
