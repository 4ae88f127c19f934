package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// setResult is what Set.Acquire returned.
type setResult struct {
	holds []*hold.Hold
	err   error
}

func acquireSetLater(ctx context.Context, s queue.Set) <-chan setResult {
	done := make(chan setResult, 1)
	go func() { // ends with ctx
		holds, err := holdtest.AcquireSet(ctx, s, hold.Request{})
		done <- setResult{holds, err}
	}()
	return done
}

// An administrator may remove the entry of a waiting set that is the first in its queue. It then stands on a lease that
// ends by itself, so the set must not hold by it.
func TestSetQueuesAgainIfOneOfItsEntriesWasWrittenTo(t *testing.T) {
	for _, written := range []string{"x", "y"} {
		t.Run(written, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Minute)
				one, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
				ahead := holdtest.MustAcquire(t, one.Queue("y"))
				waits := acquireSetLater(ctx, queue.Set{other.Queue("x"), other.Queue("y")})
				kit.Queued(t, srv, kit.Entries("y"), 2)
				entries := srv.Keys(kit.Entries(written))
				own := entries[len(entries)-1]
				lease, err := one.Host.Client.Grant(ctx, 3)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := one.Host.Client.Put(ctx, string(own.Key), "removed", clientv3.WithLease(lease.ID)); err != nil {
					t.Fatal(err)
				}
				holdtest.MustRelease(t, ahead)
				r := <-waits
				if r.err != nil {
					t.Fatal(r.err)
				}
				for _, h := range r.holds {
					if h.Created() <= own.CreateRevision {
						t.Errorf("%s is held by the entry that another client has written to", h.Key())
					}
				}
				if err := r.holds[0].Release(ctx); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// One queue after the other is found to be free. The lock delays that begin then run at the same time.
func TestSetWaitsForTheLockDelaysOfItsQueuesTogether(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		x, y, z := kit.Join(t, srv, holdtest.EntriesX), kit.Join(t, srv, kit.Entries("y")), kit.Join(t, srv, kit.Entries("z"))
		done := acquireSetLater(kit.Within(t, time.Minute), p.Set("x", "y", "z"))
		kit.Queued(t, srv, kit.Entries("z"), 2)
		y.Revoke()
		z.Revoke()
		x.Revoke()
		holds := grantedSet(t, srv, done)
		holdtest.Delayed(t, holdtest.Result{H: holds[0], At: time.Now()}, srv, x.Key, true)
		holdtest.MustRelease(t, holds[0])
	})
}

// A copy of a release arrives after the keys were used for another set.
func TestLateReleaseOfASetSparesTheNextEntriesAtItsKeys(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		holds := holdtest.MustAcquireSet(t, p.Set("x", "y"), hold.Request{})
		p.PlanOne("remove", etcdfake.Fate{Request: 10 * time.Second})
		holdtest.MustRelease(t, holds[0])
		next := holdtest.MustAcquireSet(t, p.Set("y", "x"),
			hold.Request{}) // in this order the endings of the keys return to their names
		if next[1].Key() != holds[0].Key() || next[0].Key() != holds[1].Key() {
			t.Fatal("the keys were not used again: this tests nothing")
		}
		time.Sleep(20 * time.Second)
		if err := next[0].Check(); err != nil || len(kit.AllStanding(srv)) != 2 {
			t.Errorf("the next set: %v; entries %v", err, kit.AllStanding(srv))
		}
		holdtest.MustRelease(t, next[0])
	})
}

// One entry was deleted by hand, and no poll has found that yet.
func TestReleaseOfASetThatFindsAnEntryDeletedReportsTheLoss(t *testing.T) {
	for i, name := range []string{"x", "y", "z"} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				holds := holdtest.MustAcquireSet(t, holdtest.Start(t, srv).Set("x", "y", "!z"), hold.Request{})
				srv.Delete(holds[i].Key())
				var lost *holdfast.LostError
				err := holds[0].Release(kit.Within(t, time.Minute))
				if !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted || lost.Name != name {
					t.Errorf("Release: %v", err)
				}
				kit.NothingStands(t, srv)
			})
		})
	}
}
