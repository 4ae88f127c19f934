package queue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func TestCopyThatArrivesAfterTheSessionKeyWasPutAgainDoesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanAll("enqueue", etcdfake.Fate{Request: 10 * time.Second})
		_, err := p.queue("x").Acquire(kit.Within(t, 50*time.Millisecond), Request{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := p.GateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times, want once", n)
		}
		time.Sleep(10 * time.Second)
		if n := kit.PutsEver(srv, entriesX); n != 0 {
			t.Error("the late copy has put an entry")
		}
	})
}

func TestOwnEntryIsFoundAfterALostReply(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanOne("enqueue", lostReply)
		h := granted(t, srv, acquireLater(kit.Within(t, time.Minute), p.queue("x"))).h
		if n := kit.PutsEver(srv, entriesX); n != 1 {
			t.Errorf("%d entries were put, want 1", n)
		}
		mustRelease(t, h)
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times, want once: the first copy was not answered", n)
		}
		kit.NothingStands(t, srv)
	})
}

// The read asks what stood ahead when the entry was put, not what stands there now.
func TestEntryFoundAfterALostReplyIsPlacedAtItsCreateRevision(t *testing.T) {
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
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				ahead := kit.Join(t, srv, entriesX)
				p.PlanOne("enqueue", lostReply)
				done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				time.Sleep(kit.OneWay + time.Millisecond)
				if len(srv.Keys(entriesX)) != 2 {
					t.Fatal("the entry was not put: this tests nothing")
				}
				c.leave(srv, ahead)
				delayed(t, granted(t, srv, done), srv, ahead.Key, c.delay)
			})
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) { // the same for a semaphore
				p := start(t, srv)
				setLimit(t, srv, 1, 1)
				ahead := kit.JoinPermit(t, srv, permitsX, 1)
				p.PlanOne("enqueue", lostReply)
				done := acquireLater(kit.Within(t, time.Minute), p.permits(1, 1))
				time.Sleep(kit.OneWay + time.Millisecond)
				if len(srv.Keys(permitsX)) != 2 {
					t.Fatal("the entry was not put: this tests nothing")
				}
				c.leave(srv, ahead)
				r := <-done
				if r.err != nil {
					t.Fatal(r.err)
				}
				delayed(t, r, srv, ahead.Key, c.delay)
			})
		})
	}
}

// Another client has deleted what the first copy of the put has put. So the attempt queues again, and waits for the
// lock delay.
func TestEntryDeletedBeforeItsLostReplyIsFoundOutIsPutAnewAfterADelay(t *testing.T) {
	for name, queue := range map[string]func(p *process) *Queue{
		"lock":      func(p *process) *Queue { return p.queue("x") },
		"semaphore": func(p *process) *Queue { return p.permits(1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				setLimit(t, srv, 1, 1)
				p := start(t, srv)
				q := queue(p)
				mustRelease(t, mustAcquire(t, q)) // so that it knows the limit
				p.Plan(func(kind string, n int) (f etcdfake.Fate) {
					switch {
					case kind == "enqueue" && n == 1:
						f = lostReply
					case kind == "read" && n == 1: // why the second copy was refused
						f.Request = 20 * kit.OneWay
					}
					return f
				})
				done := acquireLater(kit.Within(t, time.Minute), q)
				for p.Counts()["read"] == 0 {
					time.Sleep(kit.OneWay)
				}
				srv.Delete(string(srv.Keys(q.at.Entries)[0].Key))
				deleted := time.Now()
				r := <-done
				if after := r.at.Sub(deleted); r.err != nil || after < kit.LockDelay || after > 2*kit.LockDelay {
					t.Fatalf("after %v: %v", after, r.err)
				}
				mustRelease(t, r.h)
			})
		})
	}
}

func TestAttemptInFlightWhenTheGateMovesGetsIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanOne("enqueue", etcdfake.Fate{Request: 100 * time.Millisecond})
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(kit.OneWay)
		if _, err := p.Host.PutSessionKey(t.Context(), p.Host.Lease()); err != nil { // as the sweeper does
			t.Fatal(err)
		}
		began := time.Now()
		granted(t, srv, done)
		if took := time.Since(began); took > 100*time.Millisecond+8*kit.OneWay {
			t.Errorf("granted after %v, want no pause after a refusal by the gate", took)
		}
		if n := p.Counts()["enqueue"]; n != 2 {
			t.Errorf("%d puts were sent, want 2", n)
		}
	})
}

func TestAttemptInFlightWhenTheSessionKeyIsDeletedByHandGetsIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		// The session's watch is told late, so the attempt finds no key.
		p.Plan(func(kind string, n int) etcdfake.Fate {
			if kind == "event" {
				return etcdfake.Fate{Reply: 100 * time.Millisecond}
			}
			return etcdfake.Fate{}
		})
		srv.Delete(p.SessionKey())
		granted(t, srv, acquireLater(kit.Within(t, time.Minute), p.queue("x")))
		if n := p.Counts()["enqueue"]; n < 2 {
			t.Errorf("%d puts were sent: none was refused", n)
		}
		if err := p.Sess.Check(); err != nil {
			t.Error(err)
		}
	})
}

// A store that was restored from a backup may have the session key at an older revision than
// the session knows.
func TestSessionKeyOfAnOlderRevisionIsReadWithPauses(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		lease := p.Host.Lease()
		lease.SawGate(lease.Gate() + 1000)
		p.Plan(nil)
		_, err := p.queue("x").Acquire(kit.Within(t, 5*time.Second), Request{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if n := p.Counts()["enqueue"]; n < 2 || n > 40 {
			t.Errorf("%d puts in 5 s", n)
		}
	})
}

func TestFullStoreEndsAnAttemptAndLeavesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("held"))
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, clientv3.Op.IsPut) {
				return rpctypes.ErrNoSpace
			}
			return nil
		})
		if _, err := p.queue("x").Acquire(kit.Within(t, time.Minute), Request{}); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("Acquire: %v", err)
		}
		mustRelease(t, h)
		kit.NothingStands(t, srv)
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 0 {
			t.Errorf("the session key was put again %d times, but no copy is in flight", n)
		}
	})
}

func TestPermissionDeniedEndsAnAttemptWithOneRequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		asked := 0
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, clientv3.Op.IsPut) {
				asked++
				return rpctypes.ErrPermissionDenied
			}
			return nil
		})
		_, err := p.queue("x").Acquire(kit.Within(t, time.Minute), Request{})
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Acquire: %v", err)
		}
		time.Sleep(time.Minute)
		if asked != 1 {
			t.Errorf("%d requests, want 1", asked)
		}
		if n := p.queue("x").used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// Neither the entry that is deleted nor the one that is put counts as ahead, and the epoch is
// read before the put.
func TestTxnDeletesThenReadsThenPuts(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		synctest.Wait()
		var order []string
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if kit.KindOf(c) != "hand-off" {
				return etcdfake.Fate{}
			}
			for _, op := range c.Request.(*pb.TxnRequest).Success {
				switch {
				case op.GetRequestDeleteRange() != nil:
					order = append(order, "delete")
				case op.GetRequestRange() != nil:
					order = append(order, "read")
				case op.GetRequestPut() != nil:
					order = append(order, "put")
				}
			}
			return etcdfake.Fate{}
		})
		mustRelease(t, h)
		e := granted(t, srv, next).h.entry
		if want := []string{"delete", "read", "read", "put"}; !slices.Equal(order, want) {
			t.Errorf("the Txn has %v, want %v", order, want)
		}
		if e.ahead != nil || e.position != 0 {
			t.Errorf("ahead %v, %d entries before it, want none", e.ahead, e.position)
		}
	})
}

func TestEntryWithUnknownEpochIsQueuedAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanOne("enqueue", lostReply)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(kit.OneWay + time.Millisecond)
		srv.Put("holdfast/epoch", "7")
		h := granted(t, srv, done).h
		if epoch := h.Token().Epoch(); epoch != 7 {
			t.Errorf("token %v, want epoch 7", h.Token())
		}
		if n := kit.PutsEver(srv, entriesX); n != 2 {
			t.Errorf("%d entries were put, want 2", n)
		}
	})
}

// A put in flight is not canceled with its caller, so that its reply becomes known. But it is
// not sent again.
func TestPutIsNotSentAgainForACallerWhoHasGivenUp(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanOne("enqueue", etcdfake.Fate{Request: 20 * time.Millisecond})
		ctx, giveUp := context.WithCancel(t.Context())
		done := acquireLater(ctx, p.queue("x"))
		time.Sleep(kit.OneWay)
		if _, err := p.Host.PutSessionKey(t.Context(), p.Host.Lease()); err != nil {
			t.Fatal(err)
		}
		giveUp()
		if r := <-done; !errors.Is(r.err, context.Canceled) {
			t.Error(r.err)
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
		p := start(t, srv)
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
		if _, err := p.queue("x").Acquire(kit.Within(t, time.Second), Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v", err)
		}
		if kit.PutsEver(srv, entriesX) != 1 {
			t.Error("no entry was put: this tests nothing")
		}
		p.Heal()
		time.Sleep(10 * time.Second)
		kit.NothingStands(t, srv)
	})
}

// An administrator may remove an entry before its session knows that it is the first one. It then stands on a lease
// that ends by itself, so the attempt must not hold by it, whichever reply tells it of the entry, once that is late.
func TestAttemptDoesNotHoldByAnEntryThatWasRemovedBeforeItsReply(t *testing.T) {
	lateReads := func(kind string, n int) (f etcdfake.Fate) {
		if kind == "read" && n < 20 {
			f.Reply = 3500 * time.Millisecond
		}
		return f
	}
	for name, c := range map[string]struct {
		end  func(ahead *kit.Peer) // nil: none is ahead
		fate func(kind string, n int) etcdfake.Fate
	}{
		"the reply to the put is late": {fate: func(kind string, _ int) (f etcdfake.Fate) {
			if kind == "enqueue" {
				f.Reply = 3500 * time.Millisecond
			}
			return f
		}},
		"the read that places the entry is late": {fate: func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind == "enqueue" && n == 1:
				f = lostReply
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
				p, ops := start(t, srv), start(t, srv)
				var done <-chan result
				if c.end == nil {
					p.Plan(c.fate)
					done = acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				} else {
					ahead := kit.Join(t, srv, entriesX)
					done = acquireLater(kit.Within(t, time.Minute), p.queue("x"))
					kit.Queued(t, srv, entriesX, 2)
					p.Plan(c.fate)
					c.end(ahead)
				}
				time.Sleep(200 * time.Millisecond)
				removed := kit.Standing(srv, "x")[0]
				grant, err := ops.Host.Client().Grant(t.Context(), 3)
				if err != nil {
					t.Fatal(err)
				}
				put := clientv3.OpPut(string(removed.Key), "removed", clientv3.WithLease(grant.ID))
				if _, err := ops.Host.Client().Do(t.Context(), put); err != nil {
					t.Fatal(err)
				}
				r := granted(t, srv, done)
				if r.h.entry.rev == removed.CreateRevision {
					t.Errorf("held by the entry that was removed; sent %v", p.Counts())
				}
				mustRelease(t, r.h)
			})
		})
	}
}
