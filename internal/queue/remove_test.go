package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// The caller gives up when the create revision is known and what stands ahead is not.
func TestEntryWithUnknownPlaceIsRemovedLikeOneThatNeverHeld(t *testing.T) {
	for name, next := range map[string]bool{"leaves": false, "hands off": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, behind := holdtest.Start(t, srv), holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, holdtest.EntriesX)
				// Put, not answered, put again and refused; the first read finds the
				// entry, the second one, for what is ahead of it, is not answered.
				p.Plan(func(kind string, n int) etcdfake.Fate {
					switch {
					case kind == "enqueue" && n == 1:
						return holdtest.LostReply
					case kind == "read" && n >= 2 && n <= 4:
						return holdtest.Silence
					}
					return etcdfake.Fate{}
				})
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				waiter := holdtest.AcquireLater(ctx, p.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				if next {
					second := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
					defer func() { holdtest.MustRelease(t, holdtest.Granted(t, srv, second).H) }()
				}
				last := holdtest.AcquireLater(kit.Within(t, time.Minute), behind.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 3)
				if n := p.Counts()["read"]; n < 2 {
					t.Fatalf("%d reads: this tests nothing", n)
				}
				ahead.Revoke()
				revoked := time.Now()
				giveUp()
				<-waiter
				r := holdtest.Granted(t, srv, last)
				if took := r.At.Sub(revoked); took < kit.LockDelay {
					t.Errorf("the next waiter was granted %v after the revocation, want a lock delay", took)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}

func TestRemovalWhoseReplyIsLostIsFoundDone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.PlanOne("remove", holdtest.LostReply)
		holdtest.MustRelease(t, h)
		if n := p.Counts()["remove"]; n != 2 {
			t.Errorf("%d removals were sent, want 2", n)
		}
		kit.NothingStands(t, srv)
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 0 {
			t.Errorf("the session key was put again %d times, but a removal puts nothing", n)
		}
	})
}

// A copy of a removal arrives after its key was used for another entry.
func TestLateRemovalSparesTheNextEntryAtItsKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.PlanOne("remove", etcdfake.Fate{Request: 10 * time.Second})
		holdtest.MustRelease(t, h)
		next := holdtest.MustAcquire(t, p.Queue("x"))
		if next.Key() != h.Key() {
			t.Fatal("the key was not used again: this tests nothing")
		}
		time.Sleep(20 * time.Second)
		if err := next.Check(); err != nil || len(srv.Keys(holdtest.EntriesX)) != 1 {
			t.Errorf("the next hold: %v; entries %v", err, srv.Keys(holdtest.EntriesX))
		}
	})
}

// etcd refuses a removal, for instance because a role was withdrawn. The sweeper tries it with the session's pauses.
func TestRefusedRemovalIsRetriedUntilEtcdAllowsIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const refused, longest = 10 * time.Second, time.Second
		var metrics kit.Metrics
		p := holdtest.Start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
		h := holdtest.MustAcquire(t, p.Queue("x"))
		var tries atomic.Int32
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, clientv3.Op.IsDelete) {
				tries.Add(1)
				return rpctypes.ErrPermissionDenied
			}
			return nil
		})
		err := h.Release(kit.Within(t, time.Minute))
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Release: %v", err)
		}
		if points := metrics.Points(t); points["sweeps kind=lock"] != 1 {
			t.Errorf("counted %v", points)
		}
		time.Sleep(refused)
		if n := tries.Load(); len(srv.Keys(holdtest.EntriesX)) != 1 || n < int32(refused/longest) || n > 50 {
			t.Errorf("%d removals were refused in %v, entries %v", n, refused, srv.Keys(holdtest.EntriesX))
		}
		p.KV.Refuse(nil)
		time.Sleep(longest + kit.Prompt)
		kit.NothingStands(t, srv)
		if n := p.Queue("x").Used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// There is nothing left to remove, so the session stops trying and forgets the key.
func TestRefusedRemovalOfAnEntryThatIsDeletedByHandEnds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.PlanAll("remove", etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied})
		if err := h.Release(kit.Within(t, time.Minute)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("Release: %v", err)
		}
		srv.Delete(h.Key())
		p.Plan(nil)
		time.Sleep(5 * time.Second)
		if n := p.Queue("x").Used(); n != 0 || p.Counts()["remove"] != 0 || p.Counts()["claim"] != 1 {
			t.Errorf("%d keys are in use, sent %v", n, p.Counts())
		}
	})
}

func TestReleaseThatFindsTheEntryDeletedReportsTheLoss(t *testing.T) {
	for name, revoked := range map[string]bool{"by hand": false, "with its lease": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, p.Queue("x"))
				if revoked {
					srv.Revoke(h.Lease())
				} else {
					srv.Delete(h.Key())
				}
				if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("Release: %v", err)
				}
			})
		})
	}
}

// etcd says that the lease is gone, before the watch of the session key does.
func TestRemovalThatEtcdRefusesForWantOfTheLeaseIsALoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, clientv3.Op.IsDelete) {
				return rpctypes.ErrLeaseNotFound
			}
			return nil
		})
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		if p.Sess.Lease() == h.Lease() && p.Sess.Check() == nil {
			t.Error("the session trusts the lease")
		}
	})
}

// A waiter leaves with one request, beside which its place is read, whatever has become of its entry or is ahead of it.
func TestWaiterLeavesAtAnyTimeWithOneRequest(t *testing.T) {
	nothing := func(*etcdfake.Server, *holdtest.Process, *kit.Peer) {}
	for name, c := range map[string]struct {
		happens func(srv *etcdfake.Server, p *holdtest.Process, ahead *kit.Peer)
		after   time.Duration
		reads   int // of its place
		claims  int // claims that it finds left of its entry
	}{
		"behind another entry": {happens: nothing, after: time.Second, reads: 1},
		"its entry is deleted": {happens: func(srv *etcdfake.Server, _ *holdtest.Process, _ *kit.Peer) {
			srv.Delete(string(kit.Standing(srv, "x")[1].Key))
		}, reads: 1, claims: 1},
		"the entry ahead has gone unheard": {happens: func(_ *etcdfake.Server, p *holdtest.Process, ahead *kit.Peer) {
			p.PlanAll("event", etcdfake.Fate{Reply: time.Hour})
			ahead.Revoke()
		}, reads: 1},
		"in its lock delay": {happens: func(_ *etcdfake.Server, _ *holdtest.Process, ahead *kit.Peer) {
			ahead.Revoke()
		}, after: kit.LockDelay / 2},
		"in the delay of one whose session lives": {happens: func(_ *etcdfake.Server, _ *holdtest.Process, ahead *kit.Peer) {
			ahead.Vanish()
		}, after: 3 * time.Second / 2},
		"it may not read": {happens: func(_ *etcdfake.Server, p *holdtest.Process, _ *kit.Peer) {
			p.PlanAll("read", etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied})
		}, reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, holdtest.EntriesX)
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				done := holdtest.AcquireLater(ctx, p.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 2)
				p.Plan(nil)
				c.happens(srv, p, ahead)
				time.Sleep(c.after)
				before, left := p.Counts(), time.Now()
				giveUp()
				if r := <-done; !errors.Is(r.Err, context.Canceled) || time.Since(left) != time.Duration(1+c.claims)*2*kit.OneWay {
					t.Errorf("after %v: %v", time.Since(left), r.Err)
				}
				time.Sleep(queue.GiveUpWait)
				n := p.Counts()
				n["read"] -= before["read"]
				if n["remove"] != 1 || n["claim"] != c.claims || n["read"] != c.reads || n["clear"] != 0 {
					t.Errorf("sent %v, of these before it gave up %v", n, before)
				}
				p.Plan(nil)
				ahead.Release()
				kit.NothingStands(t, srv)
			})
		})
	}
}
