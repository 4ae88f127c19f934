package queue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The reply to the put is lost, and a read finds the entry.
func TestEntryWhoseTokenCannotBeMadeIsRemoved(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		srv.Put("holdfast/epoch", "no number")
		kit.Join(t, srv, entriesX)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			f.LoseReply = kind == "enqueue" && n == 1
			return f
		})
		if err := <-acquireErr(kit.Within(t, time.Minute), p.queue("x")); err == nil ||
			!strings.Contains(err.Error(), "not a number") {
			t.Fatal(err)
		}
		time.Sleep(kit.Prompt)
		if kvs := srv.Keys(entriesX); len(kvs) != 1 {
			t.Errorf("in the queue: %v", kvs)
		}
	})
}

// etcd refuses to remove an entry until its lease is gone, and so is the entry.
func TestNothingIsKeptOfAnEntryThatGoesWithItsLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g := mustAcquire(t, p.queue("x"))
		p.PlanAll("remove", denied)
		if err := g.HandOff(); err == nil || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("HandOff: %v", err)
		}
		srv.Revoke(g.Lease.ID())
		time.Sleep(2 * time.Second)
		p.Plan(nil)
		if n := g.Queue.Used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// The first removal is not answered, and etcd refuses the second one because the lease is gone. So the entry is.
func TestRemovalIsNotUnknownOnceEtcdSaysThatTheLeaseIsGone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g := mustAcquire(t, p.queue("x"))
		removals := 0
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if !slices.ContainsFunc(ops, clientv3.Op.IsDelete) {
				return nil
			}
			if removals++; removals == 1 {
				return nil
			}
			return rpctypes.ErrLeaseNotFound
		})
		p.PlanOne("remove", etcdfake.Fate{LoseRequest: true})
		if err := g.HandOff(); !errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("HandOff: %v", err)
		}
		if n := g.Queue.Used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}
