package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestQueueThatCannotBeUsedSaysWhy(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		synctest.Wait() // the session watches its key
		p.Plan(nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var none *Semaphore
		for name, f := range map[string]func() error{
			"no semaphore": func() error {
				_, err := Set{none.Permits(1)}.Acquire(ctx, Request{})
				return err
			},
			"the limit of no semaphore": func() error {
				_, err := none.Limit(ctx)
				return err
			},
			"the limit of a semaphore with a bad name": func() error {
				_, err := NewSemaphore(p.Host, "", 1).Limit(ctx)
				return err
			},
			"readers without a session": func() error {
				_, err := Set{New(nil, holdfast.KindLock, "x").Readers()}.Acquire(ctx, Request{})
				return err
			},
		} {
			if err := f(); err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := p.Counts(); len(n) != 0 {
			t.Errorf("sent %v", n)
		}
	})
}

// Another client may add a prefix to all keys.
func TestQueuesAreTheSameThroughOneClientOnly(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		q := p.queue("x")
		if !q.Same(p.readers("x")) || q.Same(p.queue("y")) || q.Same(other.queue("x")) {
			t.Errorf("the same: %v, %v, %v", q.Same(p.readers("x")), q.Same(p.queue("y")), q.Same(other.queue("x")))
		}
	})
}

func TestEntrySaysInWhichModeItHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		for want, q := range map[string]*Queue{
			"exclusive": p.queue("x"), "shared": p.readers("x"), "permit": p.permits(1, 1),
			"": New(p.Host, holdfast.KindElection, "x"),
		} {
			if v, ok := layout.DecodeValue([]byte(q.entryValue(Request{}))); !ok || v.Mode != want {
				t.Errorf("%v: mode %q, want %q", q, v.Mode, want)
			} else if v.Owner != p.Host.Identity.Owner || v.Owner == "" || v.ToldWithin != kit.ToldWithin {
				t.Errorf("%v: owner %q, told within %v", q, v.Owner, v.ToldWithin)
			}
		}
	})
}

// An entry of the set is left over from an earlier attempt whose removal was not answered.
func TestTryAcquireOfASetTellsAnEntryOfItsOwnSession(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g := mustAcquire(t, p.queue("other"))
		left := kit.Entries("y") + g.Key[len(kit.Entries("other")):]
		srv.Put(left, "")
		_, err := Set{p.queue("x"), p.queue("y")}.TryAcquire(kit.Within(t, time.Minute), Request{})
		if place, err := Without(err); !errors.Is(err, ErrOccupied) || place.Name != "y" || place.Holder.Key != left {
			t.Errorf("TryAcquire: %v", err)
		}
		srv.Delete(left)
	})
}

// The Txn that puts a permit reads in a Txn of its own, which a batch would hold in a third.
func TestPermitIsNeverBatched(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		kit.SetLimit(t, srv, 9)
		mustHandOff(t, mustAcquire(t, p.permits(9, 1)))
		deepest := 0
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if txn, ok := c.Request.(*pb.TxnRequest); ok {
				deepest = max(deepest, depth(txn))
			}
			return f
		})
		var all []<-chan *Grant
		for range 9 {
			all = append(all, acquireLater(kit.Within(t, time.Minute), p.permits(9, 1)))
		}
		for _, done := range all {
			mustHandOff(t, <-done)
		}
		if deepest != 2 {
			t.Errorf("Txns in %d levels, want 2", deepest)
		}
	})
}

func depth(txn *pb.TxnRequest) (n int) {
	for _, op := range txn.Success {
		if inner := op.GetRequestTxn(); inner != nil {
			n = max(n, depth(inner))
		}
	}
	return n + 1
}
