package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func TestHandOffToTheNextInLineBehindAnotherEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(kit.OneWay)
		p.Plan(nil)
		giveUp()
		<-waiter
		kit.Queued(t, srv, entriesX, 2)
		if n := p.Counts(); n["hand-off"] != 1 || n["read"] != 1 || n["enqueue"]+n["remove"] != 0 {
			t.Errorf("sent %v, want one hand-off, and one read of the next one", n)
		}
		ahead.Release()
		delayed(t, granted(t, srv, next), srv, ahead.Key, false)
	})
}

// holdWithNext returns a hold, and the result of a call that waits behind it in the line.
func holdWithNext(t *testing.T, p *process) (*Hold, <-chan result) {
	t.Helper()
	h := mustAcquire(t, p.queue("x"))
	next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
	synctest.Wait()
	return h, next
}

func TestHandOffWhoseReplyIsLostIsFoundDone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h, next := holdWithNext(t, p)
		p.PlanOne("hand-off", lostReply)
		mustRelease(t, h)
		mustRelease(t, granted(t, srv, next).h)
		if n := kit.PutsEver(srv, entriesX); n != 2 {
			t.Errorf("%d entries were put, want 2", n)
		}
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
		if n := p.GateMoves(srv); n != 1 {
			t.Errorf("the session key was put again %d times, want once: a copy may still arrive", n)
		}
	})
}

func TestUnansweredHandOffIsFinishedByOtherRequests(t *testing.T) {
	refused := etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
	for name, c := range map[string]struct {
		carriedOut bool          // the first copies, which are not answered
		unanswered int           // so many
		then       etcdfake.Fate // what becomes of the others
	}{
		"lost": {false, 8, etcdfake.Fate{}}, "carried out": {true, 8, etcdfake.Fate{}},
		"lost, then refused": {false, 1, refused}, "carried out, then refused": {true, 1, refused},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				h, next := holdWithNext(t, p)
				p.Plan(func(kind string, n int) etcdfake.Fate {
					switch {
					case kind != "hand-off":
						return etcdfake.Fate{}
					case n > c.unanswered:
						return c.then
					}
					return etcdfake.Fate{LoseRequest: !c.carriedOut, LoseReply: true, Silent: true}
				})
				released := make(chan error, 1)
				go func() { released <- h.Release(context.Background()) }()
				r := granted(t, srv, next)
				if err := <-released; err != nil {
					t.Errorf("Release: %v", err)
				}
				mustRelease(t, r.h)
				time.Sleep(time.Minute)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// The session may delete and not put. What becomes of the hold's own entry is told, and nothing of it is unknown.
func TestReleaseWhoseHandOffIsRefusedTellsWhatBecameOfItsEntry(t *testing.T) {
	for name, deleted := range map[string]bool{"removed": false, "deleted by hand": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				h, next := holdWithNext(t, p)
				p.KV.Refuse(func(ops []clientv3.Op) error {
					if !slices.ContainsFunc(ops, clientv3.Op.IsPut) {
						return nil
					}
					if deleted {
						srv.Delete(h.Key())
					}
					return rpctypes.ErrPermissionDenied
				})
				err := h.Release(kit.Within(t, time.Minute))
				if errors.Is(err, holdfast.ErrLost) != deleted || !deleted && err != nil {
					t.Errorf("Release: %v", err)
				}
				if r := <-next; !errors.Is(r.err, rpctypes.ErrPermissionDenied) {
					t.Errorf("the next: %v", r.err)
				}
				kit.NothingStands(t, srv)
			})
		})
	}
}

// etcd has not answered the put of the head, so there is nothing to hand off: its caller does not wait for etcd, and
// the next one queues by itself.
func TestHeadThatGivesUpBeforeItsPutIsAnsweredHandsNothingOff(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanAll("enqueue", silence)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		head := acquireLater(ctx, p.queue("x"))
		synctest.Wait()
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(time.Second)
		left := time.Now()
		giveUp()
		if r := <-head; !errors.Is(r.err, context.Canceled) || r.at.Sub(left) > giveUpWait {
			t.Errorf("the head returned after %v: %v", r.at.Sub(left), r.err)
		}
		time.Sleep(time.Second)
		if n := p.Counts(); n["hand-off"]+n["remove"] != 0 {
			t.Errorf("sent %v for an entry that was not put", n)
		}
		p.Plan(nil)
		mustRelease(t, granted(t, srv, next).h)
		kit.NothingStands(t, srv)
	})
}

func TestHandOffOfAnEntryThatWasDeletedReportsTheLossAndTheNextGetsIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h, next := holdWithNext(t, p)
		srv.Delete(h.Key())
		p.Plan(nil)
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		after := granted(t, srv, next).h
		if n := p.Counts(); n["hand-off"] != 1 || n["enqueue"] != 1 || n["remove"] != 0 {
			t.Errorf("sent %v, want a hand-off and an enqueue", n)
		}
		mustRelease(t, after)
		kit.NothingStands(t, srv)
	})
}

func TestHandOffToACanceledCallerGoesToTheNext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		leaves := acquireLater(ctx, p.queue("x"))
		synctest.Wait()
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		synctest.Wait()
		p.Plan(nil)
		released := make(chan error, 1)
		go func() { released <- h.Release(context.Background()) }()
		time.Sleep(kit.OneWay) // its entry is being put
		giveUp()
		if r := <-leaves; !errors.Is(r.err, context.Canceled) {
			t.Errorf("%v", r.err)
		}
		mustRelease(t, granted(t, srv, next).h)
		if err := <-released; err != nil {
			t.Errorf("Release: %v", err)
		}
		if n := p.Counts()["hand-off"]; n != 2 {
			t.Errorf("%d hand-offs, want 2", n)
		}
		kit.NothingStands(t, srv)
	})
}

// A release has succeeded when its hand-off was carried out. What happens to the entry of
// the next caller afterwards is not part of it.
func TestReleaseSucceedsWhateverHappensToTheNextEntry(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(p *process, srv *etcdfake.Server, name string)
		err   string // of the next caller
	}{
		"its token cannot be made": {func(_ *process, srv *etcdfake.Server, _ string) {
			srv.Put("holdfast/epoch", "no number")
		}, "not a number"},
		"it is deleted after the reply was lost, before a read finds it": {func(
			p *process, srv *etcdfake.Server, name string,
		) {
			mine := string(kit.Standing(srv, name)[0].Key)
			p.Link.LoseReply("Txn", 1, codes.Unavailable)
			go func() { // ends when the hand-off is carried out
				for {
					if kvs := kit.Standing(srv, name); len(kvs) == 1 && string(kvs[0].Key) != mine {
						p.Link.Plan(deletesOnFirstVerify(srv, string(kvs[0].Key)))
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				h := mustAcquire(t, p.queue("x"))
				next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				time.Sleep(time.Second)
				c.spoil(p, srv, "x")
				if err := h.Release(kit.Within(t, time.Minute)); err != nil {
					t.Errorf("Release: %v", err)
				}
				r := <-next
				if (r.err == nil) != (c.err == "") || r.err != nil && !strings.Contains(r.err.Error(), c.err) {
					t.Errorf("the next: %v, want %q", r.err, c.err)
				}
				if r.err == nil {
					mustRelease(t, r.h)
				}
			})
		})
	}
}

// deletesOnFirstVerify deletes an entry when the first read arrives after the Txn that has
// put it.
func deletesOnFirstVerify(srv *etcdfake.Server, key string) func(etcdfake.Call) etcdfake.Fate {
	return func(c etcdfake.Call) etcdfake.Fate {
		if txn, ok := c.Request.(*pb.TxnRequest); ok && len(txn.Compare) == 0 {
			go srv.Delete(key) // ends at once
		}
		return etcdfake.Fate{Request: kit.OneWay, Reply: kit.OneWay}
	}
}

// A name and a foreign prefix may be the same queue. A hold has the name that its own caller
// used, since its token is sent with that name.
func TestHandOffKeepsTheNameThatTheNextCallerUsed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		next := acquireLater(kit.Within(t, time.Minute), p.queueAt("holdfast/lock/x/@"))
		time.Sleep(time.Second)
		if err := h.Release(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		r := <-next
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.h.Queue().Name() != "holdfast/lock/x/@" {
			t.Errorf("named %q", r.h.Queue().Name())
		}
	})
}

// An administrator has written to the entry of a waiter that gives up, and the entry ahead is gone, which the hand-off
// finds. The entry leaves like any other: one that is taken for gone would stand in the way of the next.
func TestHandOffOfAWaitingEntryWithANoticeLeavesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(time.Second)
		notify(t, srv, kit.Standing(srv, "x")[1], layout.Notice{By: "ops", Reason: "deploy"})
		left := time.Now()
		p.Unheard(srv, func() {
			ahead.Release()
			giveUp()
			<-waiter
		})
		r := granted(t, srv, next)
		if after := r.at.Sub(left); after > kit.LockDelay/2 {
			t.Errorf("the next one holds after %v", after)
		}
		mustRelease(t, r.h)
		kit.NothingStands(t, srv)
	})
}
