package queue_test

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
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestHandOffToTheNextInLineBehindAnotherEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := holdtest.AcquireLater(ctx, p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(kit.OneWay)
		p.Plan(nil)
		giveUp()
		<-waiter
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		if n := p.Counts(); n["hand-off"] != 1 || n["read"] != 2 || n["enqueue"]+n["remove"] != 0 {
			t.Errorf("sent %v, want one hand-off, a read of the place, and a look of the next one", n)
		}
		ahead.Release()
		holdtest.Delayed(t, holdtest.Granted(t, srv, next), srv, ahead.Key, false)
	})
}

// holdWithNext returns a hold, and the result of a call that waits behind it in the line.
func holdWithNext(t *testing.T, p *holdtest.Process) (*hold.Hold, <-chan holdtest.Result) {
	t.Helper()
	h := holdtest.MustAcquire(t, p.Queue("x"))
	next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
	synctest.Wait()
	return h, next
}

func TestHandOffWhoseReplyIsLostIsFoundDone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h, next := holdWithNext(t, p)
		p.PlanOne("hand-off", holdtest.LostReply)
		holdtest.MustRelease(t, h)
		holdtest.MustRelease(t, holdtest.Granted(t, srv, next).H)
		if n := kit.PutsEver(srv, holdtest.EntriesX); n != 2 {
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
				p := holdtest.Start(t, srv)
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
				r := holdtest.Granted(t, srv, next)
				if err := <-released; err != nil {
					t.Errorf("Release: %v", err)
				}
				holdtest.MustRelease(t, r.H)
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
				p := holdtest.Start(t, srv)
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
				if r := <-next; !errors.Is(r.Err, rpctypes.ErrPermissionDenied) {
					t.Errorf("the next: %v", r.Err)
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
		p := holdtest.Start(t, srv)
		p.PlanAll("enqueue", holdtest.Silence)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		head := holdtest.AcquireLater(ctx, p.Queue("x"))
		synctest.Wait()
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(time.Second)
		left := time.Now()
		giveUp()
		if r := <-head; !errors.Is(r.Err, context.Canceled) || r.At.Sub(left) > queue.GiveUpWait {
			t.Errorf("the head returned after %v: %v", r.At.Sub(left), r.Err)
		}
		time.Sleep(time.Second)
		if n := p.Counts(); n["hand-off"]+n["remove"] != 0 {
			t.Errorf("sent %v for an entry that was not put", n)
		}
		p.Plan(nil)
		holdtest.MustRelease(t, holdtest.Granted(t, srv, next).H)
		kit.NothingStands(t, srv)
	})
}

func TestHandOffOfAnEntryThatWasDeletedReportsTheLossAndTheNextGetsIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h, next := holdWithNext(t, p)
		srv.Delete(h.Key())
		p.Plan(nil)
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		after := holdtest.Granted(t, srv, next).H
		if n := p.Counts(); n["hand-off"] != 1 || n["enqueue"] != 1 || n["remove"] != 1 || n["claim"] != 1 {
			t.Errorf("sent %v, want a hand-off, a removal, that of the claim, and an enqueue", n)
		}
		holdtest.MustRelease(t, after)
		kit.NothingStands(t, srv)
	})
}

func TestHandOffToACanceledCallerGoesToTheNext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		leaves := holdtest.AcquireLater(ctx, p.Queue("x"))
		synctest.Wait()
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		synctest.Wait()
		p.Plan(nil)
		released := make(chan error, 1)
		go func() { released <- h.Release(context.Background()) }()
		time.Sleep(kit.OneWay) // its entry is being put
		giveUp()
		if r := <-leaves; !errors.Is(r.Err, context.Canceled) {
			t.Errorf("%v", r.Err)
		}
		holdtest.MustRelease(t, holdtest.Granted(t, srv, next).H)
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
		spoil func(p *holdtest.Process, srv *etcdfake.Server, name string)
		err   string // of the next caller
	}{
		"its token cannot be made": {func(_ *holdtest.Process, srv *etcdfake.Server, _ string) {
			srv.Put("holdfast/epoch", "no number")
		}, "not a number"},
		"it is deleted after the reply was lost, before a read finds it": {func(
			p *holdtest.Process, srv *etcdfake.Server, name string,
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
				p := holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, p.Queue("x"))
				next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				time.Sleep(time.Second)
				c.spoil(p, srv, "x")
				if err := h.Release(kit.Within(t, time.Minute)); err != nil {
					t.Errorf("Release: %v", err)
				}
				r := <-next
				if (r.Err == nil) != (c.err == "") || r.Err != nil && !strings.Contains(r.Err.Error(), c.err) {
					t.Errorf("the next: %v, want %q", r.Err, c.err)
				}
				if r.Err == nil {
					holdtest.MustRelease(t, r.H)
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
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.QueueAt("holdfast/lock/x/@"))
		time.Sleep(time.Second)
		if err := h.Release(kit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		r := <-next
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if r.H.Queue().Name() != "holdfast/lock/x/@" {
			t.Errorf("named %q", r.H.Queue().Name())
		}
	})
}

// An administrator has written to the entry of a waiter that gives up, and the entry ahead is gone, which the hand-off
// finds. The entry leaves like any other: one that is taken for gone would stand in the way of the next.
func TestHandOffOfAWaitingEntryWithANoticeLeavesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		waiter := holdtest.AcquireLater(ctx, p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(time.Second)
		holdtest.Notify(t, srv, kit.Standing(srv, "x")[1], layout.Notice{By: "ops", Reason: "deploy"})
		left := time.Now()
		p.Unheard(srv, func() {
			ahead.Release()
			giveUp()
			<-waiter
		})
		r := holdtest.Granted(t, srv, next)
		if after := r.At.Sub(left); after > kit.LockDelay/2 {
			t.Errorf("the next one holds after %v", after)
		}
		holdtest.MustRelease(t, r.H)
		kit.NothingStands(t, srv)
	})
}
