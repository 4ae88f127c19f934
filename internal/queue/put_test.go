package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

func TestOwnEntryIsFoundAfterALostReply(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.PlanOne("enqueue", holdtest.LostReply)
		h := holdtest.Granted(t, srv, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))).H
		if n := kit.PutsEver(srv, holdtest.EntriesX); n != 1 {
			t.Errorf("%d entries were put, want 1", n)
		}
		holdtest.MustRelease(t, h)
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times, want once: the first copy was not answered", n)
		}
		kit.NothingStands(t, srv)
	})
}

// A look asks what stands ahead of the entry that is found.
func TestEntryFoundAfterALostReplyIsPlacedByALook(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(srv *etcdfake.Server, ahead *kit.Peer)
		delay bool
	}{
		"released": {func(_ *etcdfake.Server, ahead *kit.Peer) { ahead.Release() }, false},
		"revoked":  {func(_ *etcdfake.Server, ahead *kit.Peer) { ahead.Revoke() }, true},
		"released, and compacted": {func(srv *etcdfake.Server, ahead *kit.Peer) {
			ahead.Release()
			srv.Put("other", "")
			srv.Compact()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				ahead := kit.Join(t, srv, holdtest.EntriesX)
				p.PlanOne("enqueue", holdtest.LostReply)
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				time.Sleep(kit.OneWay + time.Millisecond)
				if len(srv.Keys(holdtest.EntriesX)) != 2 {
					t.Fatal("the entry was not put: this tests nothing")
				}
				c.leave(srv, ahead)
				holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, ahead.Key, c.delay)
			})
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) { // the same for a semaphore
				p := holdtest.Start(t, srv)
				kit.SetLimit(t, srv, 1)
				ahead := kit.JoinPermit(t, srv, permitsX, 1)
				p.PlanOne("enqueue", holdtest.LostReply)
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Permits(1, 1))
				time.Sleep(kit.OneWay + time.Millisecond)
				if len(srv.Keys(permitsX)) != 2 {
					t.Fatal("the entry was not put: this tests nothing")
				}
				c.leave(srv, ahead)
				r := <-done
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				holdtest.Delayed(t, r, srv, ahead.Key, c.delay)
			})
		})
	}
}

// Another client has deleted what the first copy of the put has put. So the attempt queues again. The claim tells the
// revision, and goes before.
func TestEntryDeletedBeforeItsLostReplyIsFoundOutIsPutAnew(t *testing.T) {
	for name, queue := range map[string]func(p *holdtest.Process) *queue.Queue{
		"lock":      func(p *holdtest.Process) *queue.Queue { return p.Queue("x") },
		"semaphore": func(p *holdtest.Process) *queue.Queue { return p.Permits(1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				kit.SetLimit(t, srv, 1)
				p := holdtest.Start(t, srv)
				q := queue(p)
				holdtest.MustRelease(t, holdtest.MustAcquire(t, q)) // so that it knows the limit
				p.Plan(func(kind string, n int) (f etcdfake.Fate) {
					switch {
					case kind == "enqueue" && n == 1:
						f = holdtest.LostReply
					case kind == "read" && n == 1: // why the second copy was refused
						f.Request = 20 * kit.OneWay
					}
					return f
				})
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), q)
				for p.Counts()["read"] == 0 {
					time.Sleep(kit.OneWay)
				}
				srv.Delete(string(srv.Keys(q.Layout().Entries)[0].Key))
				deleted := time.Now()
				r := <-done
				if after := r.At.Sub(deleted); r.Err != nil || after > kit.LockDelay/2 {
					t.Fatalf("after %v: %v", after, r.Err)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}

func TestFullStoreEndsAnAttemptAndLeavesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("held"))
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, clientv3.Op.IsPut) {
				return rpctypes.ErrNoSpace
			}
			return nil
		})
		if _, err := hold.Acquire(kit.Within(t, time.Minute), p.Queue("x"), hold.Request{}); !errors.Is(err,
			rpctypes.ErrNoSpace) {
			t.Errorf("Acquire: %v", err)
		}
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 0 {
			t.Errorf("the session key was put again %d times, but no copy is in flight", n)
		}
	})
}

func TestPermissionDeniedEndsAnAttemptWithOneRequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		asked := 0
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, clientv3.Op.IsPut) {
				asked++
				return rpctypes.ErrPermissionDenied
			}
			return nil
		})
		_, err := hold.Acquire(kit.Within(t, time.Minute), p.Queue("x"), hold.Request{})
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Acquire: %v", err)
		}
		time.Sleep(time.Minute)
		if asked != 1 {
			t.Errorf("%d requests, want 1", asked)
		}
		if n := p.Queue("x").Used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

func TestEntryWithUnknownEpochIsQueuedAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.PlanOne("enqueue", holdtest.LostReply)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(kit.OneWay + time.Millisecond)
		srv.Put("holdfast/epoch", "7")
		h := holdtest.Granted(t, srv, done).H
		if epoch := h.Token().Epoch(); epoch != 7 {
			t.Errorf("token %v, want epoch 7", h.Token())
		}
		if n := kit.PutsEver(srv, holdtest.EntriesX); n != 2 {
			t.Errorf("%d entries were put, want 2", n)
		}
	})
}

// A put in flight is not canceled with its caller, so that its reply becomes known. But it is
// not sent again.
func TestPutIsNotSentAgainForACallerWhoHasGivenUp(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.PlanOne("enqueue", etcdfake.Fate{Request: 20 * time.Millisecond})
		ctx, giveUp := context.WithCancel(t.Context())
		done := holdtest.AcquireLater(ctx, p.Queue("x"))
		time.Sleep(kit.OneWay)
		if _, err := p.Host.PutSessionKey(t.Context(), p.Host.Lease()); err != nil {
			t.Fatal(err)
		}
		giveUp()
		if r := <-done; !errors.Is(r.Err, context.Canceled) {
			t.Error(r.Err)
		}
		time.Sleep(time.Minute)
		if n := p.Counts()["enqueue"]; n != 1 {
			t.Errorf("%d puts were sent, want 1", n)
		}
		kit.NothingStands(t, srv)
	})
}

// etcd's client repeats a put that was carried out, the second copy is refused, and the read
// of what stands there is not answered.
func TestPutRefusedByItsOwnEarlierCopyLeavesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		puts := 0
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			txn, ok := c.Request.(*pb.TxnRequest)
			switch {
			case !ok:
			case len(txn.Compare) == 0: // the read
				f.LoseRequest, f.Silent = true, true
			case isAbout(txn, "x") && puts == 0:
				f.LoseReply, f.Code = true, codes.Canceled
				puts++
			}
			return f
		})
		if _, err := hold.Acquire(kit.Within(t, time.Second), p.Queue("x"), hold.Request{}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("Acquire: %v", err)
		}
		if kit.PutsEver(srv, holdtest.EntriesX) != 1 {
			t.Error("no entry was put: this tests nothing")
		}
		p.Heal()
		time.Sleep(10 * time.Second)
		kit.NothingStands(t, srv)
		key := srv.Keys(p.Host.Lease().Key())[0]
		if key.ModRevision == key.CreateRevision {
			t.Error("the session key was not put again, so a third copy may still put the entry")
		}
	})
}

// An administrator may remove an entry before its session knows that it is the first one. It then stands on a lease
// that ends by itself, so the attempt must not hold by it, whichever reply tells it of the entry, once that is late.
func TestAttemptDoesNotHoldByAnEntryThatWasRemovedBeforeItsReply(t *testing.T) {
	const stands = 7 * time.Second // lease.ToldWithin
	lateReads := func(kind string, n int) (f etcdfake.Fate) {
		if kind == "read" && n < 5 {
			f.Reply = stands + time.Second/2
		}
		return f
	}
	for name, c := range map[string]struct {
		end  func(ahead *kit.Peer) // nil: none is ahead
		fate func(kind string, n int) etcdfake.Fate
	}{
		"the reply to the put is late": {fate: func(kind string, _ int) (f etcdfake.Fate) {
			if kind == "enqueue" {
				f.Reply = 4600 * time.Millisecond
			}
			return f
		}},
		"the read that places the entry is late": {fate: func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind == "enqueue" && n == 1:
				f = holdtest.LostReply
			case kind == "read" && n > 1 && n < 20: // the first finds the entry
				f.Request = time.Second / 2
			}
			return f
		}},
		"the read that finds the lock free is late":     {(*kit.Peer).Release, lateReads},
		"the read before the lock delay begins is late": {(*kit.Peer).Revoke, lateReads},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv, func(o *session.Options) {
					o.TTL = time.Minute
					if c.end == nil { // the reply to a put is waited for for so long at most, and a look lasts less
						o.LockDelay = -1
					}
				})
				ops := holdtest.Start(t, srv)
				var done <-chan holdtest.Result
				if c.end == nil {
					p.Plan(c.fate)
					done = holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				} else {
					ahead := kit.Join(t, srv, holdtest.EntriesX)
					done = holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
					kit.Queued(t, srv, holdtest.EntriesX, 2)
					p.Plan(c.fate)
					c.end(ahead)
				}
				time.Sleep(200 * time.Millisecond)
				removed := kit.Standing(srv, "x")[0]
				grant, err := ops.Host.Client.Grant(t.Context(), int64(stands/time.Second))
				if err != nil {
					t.Fatal(err)
				}
				put := clientv3.OpPut(string(removed.Key), "removed", clientv3.WithLease(grant.ID))
				if _, err := ops.Host.Client.Do(t.Context(), put); err != nil {
					t.Fatal(err)
				}
				r := holdtest.Granted(t, srv, done)
				if r.H.Created() == removed.CreateRevision {
					t.Errorf("held by the entry that was removed; sent %v", p.Counts())
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}
