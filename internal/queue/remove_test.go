package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func TestWaiterThatGivesUpWhileTheEntryAheadStandsLeavesAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, behind := start(t, srv), start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		last := acquireLater(kit.Within(t, time.Minute), behind.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
		began := time.Now()
		giveUp()
		if r := <-waiter; !errors.Is(r.err, context.Canceled) || r.at.Sub(began) > 2*kit.OneWay {
			t.Errorf("gave up after %v: %v", r.at.Sub(began), r.err)
		}
		if keys := kit.KeysOf(srv.Keys(entriesX)); len(keys) != 2 {
			t.Errorf("in the queue: %v", keys)
		}
		ahead.Release()
		delayed(t, granted(t, srv, last), srv, ahead.Key, false)
	})
}

// giveUpAfterRevocation has a waiter give up whose predecessor was revoked, after
// some time, and returns when the one behind it was granted, counted from the
// revocation. With next, another goroutine of the waiter's session is in line.
func giveUpAfterRevocation(t *testing.T, unheard bool, after time.Duration, next bool) {
	t.Helper()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, behind := start(t, srv), start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		last := acquireLater(kit.Within(t, time.Minute), behind.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
		var second <-chan result
		if next {
			second = acquireLater(kit.Within(t, time.Minute), p.queue("x"))
			time.Sleep(kit.OneWay)
		}
		p.Plan(func(kind string, _ int) etcdfake.Fate {
			if unheard && kind == "event" {
				return etcdfake.Fate{Reply: time.Minute}
			}
			return etcdfake.Fate{}
		})
		ahead.Revoke()
		revoked := time.Now()
		time.Sleep(after)
		giveUp()
		if r := <-waiter; !errors.Is(r.err, context.Canceled) {
			t.Fatalf("the waiter: %v", r.err)
		}
		r := granted(t, srv, last)
		if took := r.at.Sub(revoked); took < kit.LockDelay || took > kit.LockDelay+kit.Prompt {
			t.Errorf("the one behind was granted %v after the revocation, want a lock delay", took)
		}
		mustRelease(t, r.h)
		if next {
			mustRelease(t, granted(t, srv, second).h)
		}
		kit.NothingStands(t, srv)
	})
}

// The one behind sees the waiter's exit and not the revocation ahead of it.
func TestOneBehindAWaiterThatGivesUpAfterARevocationIsHeldBack(t *testing.T) {
	for name, next := range map[string]bool{"leaves": false, "hands off": true} {
		t.Run(name+" without having heard of it", func(t *testing.T) { giveUpAfterRevocation(t, true, 0, next) })
		t.Run(name+" during its lock delay", func(t *testing.T) { giveUpAfterRevocation(t, false, kit.LockDelay/2, next) })
	}
}

// The create revision is known, and the caller gives up before it is known what
// stands ahead.
func TestEntryWhosePlaceIsNotKnownLeavesByTheRuleForThoseThatNeverHeld(t *testing.T) {
	for name, next := range map[string]bool{"leaves": false, "hands off": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, behind := start(t, srv), start(t, srv)
				ahead := kit.Join(t, srv, entriesX)
				// Put, not answered, put again and refused; the first read finds the
				// entry, the second one, for what is ahead of it, is not answered.
				p.Plan(func(kind string, n int) etcdfake.Fate {
					switch {
					case kind == "enqueue" && n == 1:
						return lostReply
					case kind == "read" && n >= 2 && n <= 4:
						return silence
					}
					return etcdfake.Fate{}
				})
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				waiter := acquireLater(ctx, p.queue("x"))
				kit.Queued(t, srv, entriesX, 2)
				if next {
					second := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
					defer func() { mustRelease(t, granted(t, srv, second).h) }()
				}
				last := acquireLater(kit.Within(t, time.Minute), behind.queue("x"))
				kit.Queued(t, srv, entriesX, 3)
				if n := p.Counts()["read"]; n < 2 {
					t.Fatalf("%d reads: this tests nothing", n)
				}
				ahead.Revoke()
				revoked := time.Now()
				giveUp()
				<-waiter
				r := granted(t, srv, last)
				if took := r.at.Sub(revoked); took < kit.LockDelay {
					t.Errorf("the one behind was granted %v after the revocation, want a lock delay", took)
				}
				mustRelease(t, r.h)
			})
		})
	}
}

func TestRemovalWhoseAnswerIsLostIsFoundDone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		p.PlanOne("remove", lostReply)
		mustRelease(t, h)
		if n := p.Counts()["remove"]; n != 2 {
			t.Errorf("%d removals were sent, want 2", n)
		}
		kit.NothingStands(t, srv)
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 0 {
			t.Errorf("the session key was put again %d times: a removal can put nothing", n)
		}
	})
}

// A copy of a removal arrives long after its key was used for another entry.
func TestLateRemovalSparesTheNextEntryAtItsKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		p.PlanOne("remove", etcdfake.Fate{Request: 10 * time.Second})
		mustRelease(t, h)
		next := mustAcquire(t, p.queue("x"))
		if next.Key() != h.Key() {
			t.Fatal("the key was not used again: this tests nothing")
		}
		time.Sleep(20 * time.Second)
		if err := next.Check(); err != nil || len(srv.Keys(entriesX)) != 1 {
			t.Errorf("the next hold: %v; entries %v", err, srv.Keys(entriesX))
		}
	})
}

// etcd refuses a removal, as when a role was taken away.
func TestRefusedRemovalIsTriedUntilEtcdAllowsIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		p.KV.Refuse(func(ops []clientv3.Op) error {
			for _, op := range ops {
				if op.IsDelete() {
					return rpctypes.ErrPermissionDenied
				}
			}
			return nil
		})
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(time.Minute)
		if len(srv.Keys(entriesX)) != 1 {
			t.Fatal("the entry has gone: this tests nothing")
		}
		p.KV.Refuse(nil)
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
	})
}

func TestReleaseThatFindsTheEntryDeletedReportsTheLoss(t *testing.T) {
	for name, revoked := range map[string]bool{"by hand": false, "with its lease": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				h := mustAcquire(t, p.queue("x"))
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

// A removal of the sweeper may be late: it names the entry that it means by its
// create revision.
func TestLateSweepSparesTheNextLockOfTheSameSession(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		h := mustAcquire(t, q)
		const late = 10 * time.Second
		refused := 0
		var swept atomic.Int32
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			txn, ok := c.Request.(*pb.TxnRequest)
			switch {
			case !ok || !isRemoval(txn, "x"):
			case refused < 2: // the caller's own, and the session's
				f.LoseRequest, f.Code = true, codes.PermissionDenied
				refused++
			default:
				f.Request = late
				swept.Add(1)
			}
			return f
		})
		if err := h.Release(kit.Within(t, time.Minute)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("Unlock: %v", err)
		}
		time.Sleep(late / 2)
		if refused != 2 || swept.Load() == 0 {
			t.Fatalf("%d removals were refused, %d sweeps sent: this tests nothing", refused, swept.Load())
		}
		srv.Delete(string(kit.Standing(srv, "x")[0].Key)) // by hand, before the sweeper's removal arrives
		h = mustAcquire(t, q)
		time.Sleep(late)
		if err := h.Check(); err != nil || !isFirst(srv, h) {
			t.Errorf("the late sweep has removed the next lock's entry: %v", err)
		}
		p.Link.Plan(nil)
		unacquireAll(t, srv, []*Hold{h})
	})
}
