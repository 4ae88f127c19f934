package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// Whichever of them is canceled, and when: the others are served, and nothing is left.
func TestCanceledWaitersOfASemaphoreLeaveNothing(t *testing.T) {
	for at := time.Duration(0); at < 40*kit.OneWay; at += kit.OneWay / 2 {
		for who := range 3 {
			if bubble.Race && who != int(2*at/kit.OneWay)%3 {
				continue // each moment for one of them; CI tests all without the race detector
			}
			t.Run(fmt.Sprintf("waiter %d at %v", who, at), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					ctx := kit.Within(t, time.Minute)
					p := start(t, srv)
					h := mustAcquire(t, p.permits(1, 1))
					var got []<-chan result
					var cancels []context.CancelFunc
					for range 3 {
						c, cancel := context.WithCancel(ctx)
						cancels = append(cancels, cancel)
						got = append(got, acquireLater(c, start(t, srv).permits(1, 1)))
						time.Sleep(2 * kit.OneWay)
					}
					time.AfterFunc(at, cancels[who])
					time.Sleep(15 * kit.OneWay)
					mustRelease(t, h)
					for i, done := range got {
						r := <-done
						switch {
						case r.err == nil:
							mustRelease(t, r.h)
						case i != who || !errors.Is(r.err, context.Canceled):
							t.Errorf("waiter %d: %v", i, r.err)
						}
					}
					for _, cancel := range cancels {
						cancel()
					}
					time.Sleep(time.Minute)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

func TestPermitsWithLostReplies(t *testing.T) {
	for _, kind := range []string{"enqueue", "read", "watch", "mark", "remove"} {
		for name, fate := range map[string]etcdfake.Fate{
			"reply": lostReply, "request": {LoseRequest: true}, "silent": silence,
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					ctx := kit.Within(t, time.Minute)
					setLimit(t, srv, 2, 2)
					p, q := start(t, srv), start(t, srv)
					p.PlanOne(kind, fate)
					q.PlanOne(kind, fate)
					a := mustAcquire(t, p.permits(2, 2))
					b := acquireLater(ctx, q.permits(2, 1))
					time.Sleep(10 * time.Second)
					c := acquireLater(ctx, p.permits(2, 2))
					time.Sleep(10 * time.Second)
					stillWaits(t, b)
					mustRelease(t, a)
					r := <-b
					if r.err != nil {
						t.Fatal(r.err)
					}
					stillWaits(t, c)
					mustRelease(t, r.h)
					if r = <-c; r.err != nil {
						t.Fatal(r.err)
					}
					mustRelease(t, r.h)
					time.Sleep(time.Minute)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

func TestWaiterOfASemaphoreWhoseEntryIsDeletedQueuesAgain(t *testing.T) {
	for name, far := range map[string]bool{"far": true, "first": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Minute)
				p := start(t, srv)
				h := mustAcquire(t, p.permits(1, 1))
				var between *kit.Peer
				if far {
					between = kit.JoinPermit(t, srv, permitsX, 1)
				}
				waiter := acquireLater(ctx, start(t, srv).permits(1, 1))
				n := len(srv.Keys(permitsX)) + 1
				kit.Queued(t, srv, permitsX, n)
				own := string(srv.Keys(permitsX)[n-1].Key)
				srv.Delete(own)
				at := time.Now()
				if far {
					between.Release()
				}
				mustRelease(t, h)
				r := <-waiter
				if r.err != nil {
					t.Fatal(r.err)
				}
				if r.h.entry.rev == srv.History(own)[0].Revision {
					t.Error("it holds by the entry that was deleted")
				}
				if after := r.at.Sub(at); after < kit.LockDelay { // one ahead may have been revoked meanwhile
					t.Errorf("it held %v after its entry was deleted", after)
				}
				mustRelease(t, r.h)
			})
		})
	}
}

func TestWaiterOfASemaphoreIsNotGrantedWhileItsSessionIsSuspended(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		h := mustAcquire(t, start(t, srv).permits(1, 1))
		p := start(t, srv)
		waiter := acquireLater(ctx, p.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		p.PlanAll("LeaseKeepAlive", silence)
		time.Sleep(kit.Trust/2 + time.Second) // suspended
		if !errors.Is(p.Sess.Check(), holdfast.ErrSuspended) {
			t.Fatal(p.Sess.Check())
		}
		mustRelease(t, h)
		stillWaits(t, waiter)
		p.Plan(nil)
		r := <-waiter
		if r.err != nil || r.h.Check() != nil {
			t.Fatal(r.err)
		}
		mustRelease(t, r.h)
	})
}

// The lease of the waiter in the middle expires: nothing of it is left, and the one behind does not know what it has
// judged.
func TestDeadWaiterOfASemaphoreCostsOneLockDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		h := mustAcquire(t, start(t, srv).permits(1, 1))
		dead := kit.JoinPermit(t, srv, permitsX, 1)
		waiter := acquireLater(ctx, start(t, srv).permits(1, 1))
		kit.Queued(t, srv, permitsX, 3)
		dead.Revoke()
		at := time.Now()
		time.Sleep(4 * kit.OneWay)
		mustRelease(t, h)
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if after := r.at.Sub(at); after < kit.LockDelay || after > kit.LockDelay+kit.Prompt {
			t.Errorf("it held after %v", after)
		}
		mustRelease(t, r.h)
	})
}

func TestPermitWhoseEntryIsDeletedOrRevokedIsLost(t *testing.T) {
	for name, lose := range map[string]func(srv *etcdfake.Server, h *Hold){
		"deleted": func(srv *etcdfake.Server, h *Hold) { srv.Delete(h.Key()) },
		"revoked": func(srv *etcdfake.Server, h *Hold) { srv.Revoke(h.Lease()) },
	} {
		for waited := range 2 {
			t.Run(fmt.Sprintf("%s, waited %d", name, waited), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := start(t, srv)
					done := acquireLater(kit.Within(t, time.Minute), p.permits(1, 1))
					if waited > 0 {
						kit.Queued(t, srv, permitsX, 1)
						h := (<-done).h
						done = acquireLater(kit.Within(t, time.Minute), start(t, srv).permits(1, 1))
						kit.Queued(t, srv, permitsX, 2)
						mustRelease(t, h)
					}
					h := heldNow(t, done)
					time.Sleep(5 * time.Second) // the poller finds the entry as it was put
					if err := h.Check(); err != nil {
						t.Fatal(err)
					}
					lose(srv, h)
					select {
					case <-h.Done():
					case <-time.After(2 * time.Second):
						t.Fatal("it is not told")
					}
					if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The first copy of the mark that a waiter puts as it gives up arrives after the key was used for another entry, which
// has judged nothing.
func TestLateMarkOfAWaiterThatGaveUpSparesTheNextEntryAtItsKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := mustAcquire(t, start(t, srv).permits(1, 1))
		p := start(t, srv)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		first := acquireLater(ctx, p.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		left := string(srv.Keys(permitsX)[1].Key)
		p.PlanOne("mark", etcdfake.Fate{Request: 10 * time.Second})
		giveUp()
		if r := <-first; !errors.Is(r.err, context.Canceled) {
			t.Fatal(r.err)
		}
		time.Sleep(time.Second)
		next := acquireLater(kit.Within(t, time.Minute), p.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		if key := string(srv.Keys(permitsX)[1].Key); key != left || p.Counts()["mark"] < 2 {
			t.Fatalf("key %s after %s, sent %v: this tests nothing", key, left, p.Counts())
		}
		time.Sleep(20 * time.Second)
		if mark := layout.MarkIn(srv.Keys(permitsX)[1]); mark != 0 {
			t.Errorf("the next entry has a mark of revision %d", mark)
		}
		mustRelease(t, h)
		mustRelease(t, heldNow(t, next))
	})
}

// Its mark stands, so a removal that is sent again does not bring it again.
func TestFirstWaiterThatGivesUpMarksOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := mustAcquire(t, start(t, srv).permits(1, 1))
		p := start(t, srv)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		first := acquireLater(ctx, p.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		p.PlanOne("remove", etcdfake.Fate{LoseRequest: true})
		giveUp()
		<-first
		kit.Queued(t, srv, permitsX, 1)
		if n := p.Counts(); n["remove"] != 2 || n["mark"] != 1 {
			t.Errorf("sent %v, want two removals and one mark", n)
		}
		mustRelease(t, h)
	})
}

// There is nothing to mark or to remove: the waiter leaves quietly, and its session keeps nothing of it.
func TestFirstWaiterWhoseEntryWasDeletedGivesUp(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		h := mustAcquire(t, start(t, srv).permits(1, 1))
		p := start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		first := acquireLater(ctx, p.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Delete(string(srv.Keys(permitsX)[1].Key))
		giveUp()
		if r := <-first; !errors.Is(r.err, context.Canceled) {
			t.Errorf("Acquire: %v", r.err)
		}
		time.Sleep(time.Second)
		if n := p.permits(1, 1).used(); n != 0 || log.Len() != 0 {
			t.Errorf("%d keys are in use; logged:\n%s", n, &log)
		}
		mustRelease(t, h)
	})
}

func TestTheCopyOfAPermitsPutThatArrivesLateIsRemoved(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		setLimit(t, srv, 1, 1)
		p.PlanAll("enqueue", etcdfake.Fate{Request: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.permits(1, 1).Acquire(ctx, Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		p.Plan(nil)
		time.Sleep(5 * time.Minute)
		kit.NothingStands(t, srv)
	})
}

// What etcd's client has put a second time is an orphan.
func TestOrphanedPermitIsRemoved(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		mustRelease(t, mustAcquire(t, p.permits(1, 1)))
		key := fmt.Sprintf("%s1-%x-AAAAAAAAAAAAAAAA", permitsX, int64(p.Host.Lease().ID()))
		if _, err := srv.Client(t).Put(t.Context(), key, "", clientv3.WithLease(p.Host.Lease().ID())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		kit.NothingStands(t, srv)
	})
}
