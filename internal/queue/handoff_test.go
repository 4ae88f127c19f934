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
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func TestHandOffToTheNextInLineWhileTheEntryAheadStands(t *testing.T) {
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

// holdWithNext is a hold, and a goroutine of the same session that is next.
func holdWithNext(t *testing.T, p *process) (*Hold, <-chan result) {
	t.Helper()
	h := mustAcquire(t, p.queue("x"))
	next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
	synctest.Wait()
	return h, next
}

func TestHandOffWhoseAnswerIsLostIsFoundDone(t *testing.T) {
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
			t.Errorf("the session key was put again %d times, want once: a copy may still come", n)
		}
	})
}

func TestHandOffThatIsNeverAnsweredIsDoneByOtherMeans(t *testing.T) {
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

func TestHandOffToOneThatHasLeftMeanwhileGoesToTheOneAfter(t *testing.T) {
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

// What becomes of the next one's entry after a hand-over was carried out is no
// matter of who has left by it.
func TestUnlockSaysReleasedWhateverBecomesOfTheNextOnesEntry(t *testing.T) {
	for name, spoil := range map[string]func(p *process, srv *etcdfake.Server, name string){
		"its token cannot be made": func(_ *process, srv *etcdfake.Server, _ string) { srv.Put("holdfast/epoch", "no number") },
		"it is deleted before the reply that was lost is asked for again": func(p *process, srv *etcdfake.Server, name string) {
			mine := string(kit.Standing(srv, name)[0].Key)
			p.Link.LoseReply("Txn", 1, codes.Unavailable)
			go func() { // ends when the hand-over is carried out
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
					t.Errorf("Unlock: %v", err)
				}
				if r := <-next; r.err == nil {
					if err := r.h.Release(kit.Within(t, time.Minute)); err != nil {
						t.Errorf("Unlock of the next: %v", err)
					}
				} else if !strings.Contains(r.err.Error(), "not a number") {
					t.Error(r.err)
				}
			})
		})
	}
}

// deletesOnFirstVerify deletes an entry as soon as its existence is verified:
// by a Txn that only reads, since the one before has found it.
func deletesOnFirstVerify(srv *etcdfake.Server, key string) func(etcdfake.Call) etcdfake.Fate {
	return func(c etcdfake.Call) etcdfake.Fate {
		if txn, ok := c.Request.(*pb.TxnRequest); ok && len(txn.Compare) == 0 {
			go srv.Delete(key) // ends at once
		}
		return etcdfake.Fate{Request: kit.OneWay, Reply: kit.OneWay}
	}
}

// A name and a prefix may mean one queue. What the one has put for the other is
// the other's lock: its token is sent with the name that its owner knows.
func TestHandOverGivesALockOfTheNameThatItsOwnerUsed(t *testing.T) {
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
