package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
		if n := p.Counts(); n["hand-off"] != 1 || n["enqueue"]+n["remove"] != 0 {
			t.Errorf("sent %v, want one hand-off", n)
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
	for name, carriedOut := range map[string]bool{"lost": false, "carried out": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				h, next := holdWithNext(t, p)
				p.Plan(func(kind string, n int) etcdfake.Fate {
					if kind != "hand-off" || n > 8 {
						return etcdfake.Fate{}
					}
					return etcdfake.Fate{LoseRequest: !carriedOut, LoseReply: true, Silent: true}
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

func TestHandOffOfAnEntryThatWasDeletedReportsTheLossAndTheNextGetsIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h, next := holdWithNext(t, p)
		srv.Delete(h.Key())
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		mustRelease(t, granted(t, srv, next).h)
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
	for name, spoil := range map[string]func(p *process, srv *etcdfake.Server, name string){
		"its token cannot be made": func(_ *process, srv *etcdfake.Server, _ string) {
			srv.Put("holdfast/epoch", "no number")
		},
		"it is deleted after the reply was lost, before a read finds it": func(
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
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				h := mustAcquire(t, p.queue("x"))
				next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				time.Sleep(time.Second)
				spoil(p, srv, "x")
				if err := h.Release(kit.Within(t, time.Minute)); err != nil {
					t.Errorf("Release: %v", err)
				}
				if r := <-next; r.err == nil {
					if err := r.h.Release(kit.Within(t, time.Minute)); err != nil {
						t.Errorf("Release of the next: %v", err)
					}
				} else if !strings.Contains(r.err.Error(), "not a number") {
					t.Error(r.err)
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
