package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func stillWaits(t *testing.T, done <-chan result) {
	t.Helper()
	time.Sleep(20 * kit.OneWay)
	select {
	case r := <-done:
		t.Fatalf("it was granted, error %v", r.err)
	default:
	}
}

// Each waiter is told once, whatever happens behind and ahead of the one it waits for.
func TestWaitersOfASemaphoreCostConstantRequestsEach(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const n, limit = 200, 10
		ctx := kit.Within(t, time.Hour)
		setLimit(t, srv, limit, limit)
		holder, p := start(t, srv), start(t, srv)
		full := mustAcquire(t, holder.permits(limit, limit))
		got := make(chan result)
		for range n {
			go func() {
				h, err := p.permits(limit, 1).Acquire(ctx, Request{})
				got <- result{h: h, err: err}
			}()
		}
		kit.Queued(t, srv, permitsX, n+1)
		time.Sleep(10 * time.Second) // the streams of their watches have grown
		p.Plan(nil)
		mustRelease(t, full)
		last := int64(0)
		for range n {
			r := <-got
			if r.err != nil {
				t.Fatal(r.err)
			}
			if rev := r.h.entry.rev; rev < last {
				t.Errorf("the entry of revision %d held after that of %d", rev, last)
			} else {
				last = rev
			}
			mustRelease(t, r.h)
		}
		sent := p.Counts()
		most := map[string]int{"read": n, "watch": n, "mark": n, "remove": n, "enqueue": 0, "event": 8 * n}
		for kind, most := range most {
			if sent[kind] > most+n/10 {
				t.Errorf("%d waiters sent %v, want %s at most %d times", n, sent, kind, most)
			}
		}
		kit.NothingStands(t, srv)
	})
}

func TestResizeWakesTheFirstWaiter(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p, other := start(t, srv), start(t, srv)
		h := mustAcquire(t, p.permits(1, 1))
		first := acquireLater(ctx, p.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		second := acquireLater(ctx, other.permits(1, 1))
		kit.Queued(t, srv, permitsX, 3)
		if err := other.permits(1, 1).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		a := heldNow(t, first)
		stillWaits(t, second)
		if err := other.permits(2, 1).Resize(ctx, 3); err != nil {
			t.Fatal(err)
		}
		b := heldNow(t, second)
		for _, h := range []*Hold{h, a, b} {
			mustRelease(t, h)
		}
	})
}

// Three hold, and none of them has a mark. So the one that queues after the limit was lowered cannot know that they
// hold, and must watch all of them.
func TestWaiterBehindMoreHoldersThanTheLimitIsWoken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := start(t, srv)
		holds := []*Hold{mustAcquire(t, p.permits(3, 1)), mustAcquire(t, p.permits(3, 1)), mustAcquire(t, p.permits(3, 1))}
		if err := p.permits(3, 1).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		waiter := acquireLater(ctx, start(t, srv).permits(2, 1))
		kit.Queued(t, srv, permitsX, 4)
		mustRelease(t, holds[0])
		stillWaits(t, waiter) // two hold
		mustRelease(t, holds[1])
		h := heldNow(t, waiter)
		mustRelease(t, h)
		mustRelease(t, holds[2])
	})
}

// The limit is lowered after the waiter has heard that there is room, and before it holds.
func TestWaiterIsNotAdmittedAboveALimitThatWasJustLowered(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p, q := start(t, srv), start(t, srv)
		a, b := mustAcquire(t, p.permits(2, 1)), mustAcquire(t, p.permits(2, 1))
		waiter := acquireLater(ctx, q.permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		q.PlanOne("mark", etcdfake.Fate{Request: 50 * kit.OneWay})
		mustRelease(t, a)
		if err := p.permits(2, 1).Resize(ctx, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * kit.OneWay)
		stillWaits(t, waiter)
		mustRelease(t, b)
		mustRelease(t, heldNow(t, waiter))
	})
}

func TestWaiterWhoseWeightIsAboveALoweredLimitFailsAndLeaves(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := start(t, srv)
		h := mustAcquire(t, p.permits(3, 1))
		heavy := acquireLater(ctx, p.permits(3, 3))
		kit.Queued(t, srv, permitsX, 2)
		light := acquireLater(ctx, start(t, srv).permits(3, 1))
		kit.Queued(t, srv, permitsX, 3)
		if err := p.permits(3, 1).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		var limit *holdfast.LimitError
		if r := <-heavy; !errors.As(r.err, &limit) || limit.Limit != 2 || limit.Weight != 3 {
			t.Errorf("%v", r.err)
		}
		mustRelease(t, heldNow(t, light))
		mustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}

func TestResizeFromAnotherLimitIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := start(t, srv)
		q := p.permits(3, 1)
		for _, to := range []int{0, -1, MaxPermits + 1} {
			if err := q.Resize(ctx, to); !errors.As(err, new(*holdfast.ArgumentError)) {
				t.Errorf("to %d: %v", to, err)
			}
		}
		if n, err := q.Limit(ctx); n != 0 || err != nil {
			t.Errorf("limit %d, %v before the first acquisition", n, err)
		}
		p.PlanOne("enqueue", lostReply) // sent again, and carried out twice
		if err := q.Resize(ctx, 5); err != nil {
			t.Fatal(err)
		}
		if n, err := q.Limit(ctx); n != 5 || err != nil {
			t.Errorf("limit %d, %v", n, err)
		}
		var limit *holdfast.LimitError
		if err := q.Resize(ctx, 4); !errors.As(err, &limit) || limit.Limit != 5 || limit.Named != 3 {
			t.Error(err)
		}
		if err := q.Resize(ctx, 5); err != nil {
			t.Errorf("to what it is: %v", err)
		}
	})
}

func TestLimitThatIsDeletedWhileOneWaitsIsPutAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := start(t, srv)
		h := mustAcquire(t, p.permits(1, 1))
		waiter := acquireLater(ctx, start(t, srv).permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Delete(limitX)
		mustRelease(t, h)
		mustRelease(t, heldNow(t, waiter))
		if kvs := srv.Keys(limitX); len(kvs) != 1 || string(kvs[0].Value) != "1 1" {
			t.Errorf("%v", kvs)
		}
	})
}

func TestLimitThatIsNoNumberIsAnError(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		if _, err := srv.Client().Put(t.Context(), limitX, "many"); err != nil {
			t.Fatal(err)
		}
		_, err := start(t, srv).permits(1, 1).Acquire(kit.Within(t, time.Minute), Request{})
		if err == nil || !strings.Contains(err.Error(), limitX) {
			t.Error(err)
		}
		kit.NothingStands(t, srv)
	})
}

// The first waiter leaves a mark, so the next one knows what it has judged, and holds as soon as there is room.
func TestFirstWaiterThatGivesUpCostsNoDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := start(t, srv)
		h := mustAcquire(t, p.permits(1, 1))
		var last <-chan result
		var cancels []context.CancelFunc
		for i := range 5 {
			c, cancel := context.WithCancel(ctx)
			cancels = append(cancels, cancel)
			last = acquireLater(c, start(t, srv).permits(1, 1))
			kit.Queued(t, srv, permitsX, i+2)
		}
		for _, cancel := range cancels[:4] {
			cancel()
			time.Sleep(20 * kit.OneWay)
		}
		mustRelease(t, h)
		mustRelease(t, heldNow(t, last))
		cancels[4]()
	})
}

// The second waiter has never seen the first holder, whose lease was revoked. The first waiter had, and its mark says
// so.
func TestWaiterDelaysForAPermitThatWasRevokedBeforeItWasFirst(t *testing.T) {
	for name, revoked := range map[string]bool{"revoked": true, "released": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Hour)
				setLimit(t, srv, 2, 2)
				ahead, beside := kit.JoinPermit(t, srv, permitsX, 1), kit.JoinPermit(t, srv, permitsX, 1)
				p, q := start(t, srv), start(t, srv)
				first := acquireLater(ctx, p.permits(2, 1))
				kit.Queued(t, srv, permitsX, 3)
				second := acquireLater(ctx, q.permits(2, 1))
				kit.Queued(t, srv, permitsX, 4)
				p.PlanOne("mark", etcdfake.Fate{Request: 100 * time.Millisecond})
				ahead.Release() // the first waiter is about to hold, and has not heard of what follows
				time.Sleep(4 * kit.OneWay)
				p.PlanAll("event", etcdfake.Fate{Reply: time.Second})
				if revoked {
					beside.Revoke()
				} else {
					beside.Release()
				}
				at := time.Now()
				a, b := <-first, <-second
				if a.err != nil || b.err != nil {
					t.Fatal(a.err, b.err)
				}
				if after := b.at.Sub(at); revoked != (after >= kit.LockDelay) {
					t.Errorf("the second waiter held after %v", after)
				}
				mustRelease(t, a.h)
				mustRelease(t, b.h)
			})
		})
	}
}

// The first waiter wakes the second one only when the lock delay is over.
func TestAllWaitersBehindARevokedPermitDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		setLimit(t, srv, 3, 3)
		ahead := kit.JoinPermit(t, srv, permitsX, 3)
		var got []<-chan result
		for i := range 3 {
			got = append(got, acquireLater(ctx, start(t, srv).permits(3, 1)))
			kit.Queued(t, srv, permitsX, i+2)
		}
		ahead.Revoke()
		at := time.Now()
		for i, done := range got {
			r := <-done
			if r.err != nil {
				t.Fatal(r.err)
			}
			if after := r.at.Sub(at); after < kit.LockDelay || after > kit.LockDelay+kit.Prompt {
				t.Errorf("waiter %d held %v after the permit ahead was revoked", i, after)
			}
			defer mustRelease(t, r.h)
		}
	})
}

// It may give up before it has judged the one that was revoked, or while it waits for the lock delay. Either way the
// next one waits for that.
func TestFirstWaiterThatGivesUpPassesOnWhatIsToBeWaitedFor(t *testing.T) {
	for _, after := range []time.Duration{2 * kit.OneWay, kit.LockDelay / 2} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				setLimit(t, srv, 2, 2)
				ahead := kit.JoinPermit(t, srv, permitsX, 2)
				first := acquireLater(ctx, start(t, srv).permits(2, 1))
				kit.Queued(t, srv, permitsX, 2)
				second := acquireLater(kit.Within(t, time.Minute), start(t, srv).permits(2, 1))
				kit.Queued(t, srv, permitsX, 3)
				ahead.Revoke()
				at := time.Now()
				time.Sleep(after)
				giveUp()
				if r := <-first; !errors.Is(r.err, context.Canceled) {
					t.Fatal(r.err)
				}
				r := <-second
				if r.err != nil {
					t.Fatal(r.err)
				}
				if took := r.at.Sub(at); took < kit.LockDelay {
					t.Errorf("the second waiter held %v after a permit ahead of it was revoked", took)
				}
				mustRelease(t, r.h)
			})
		})
	}
}

func TestWaiterDelaysIfWhatStoodAheadAtTheMarkIsCompacted(t *testing.T) {
	for name, compacted := range map[string]bool{"compacted": true, "not": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Minute)
				h := mustAcquire(t, start(t, srv).permits(1, 1))
				first := acquireLater(ctx, start(t, srv).permits(1, 1))
				kit.Queued(t, srv, permitsX, 2)
				p := start(t, srv)
				second := acquireLater(ctx, p.permits(1, 1))
				kit.Queued(t, srv, permitsX, 3)
				p.PlanOne("read", etcdfake.Fate{Request: 20 * kit.OneWay}) // the one at the revision of the mark
				mustRelease(t, h)
				held := heldNow(t, first)
				if compacted {
					srv.Put("other", "")
					srv.Compact()
				}
				mustRelease(t, held)
				at := time.Now()
				r := <-second
				if r.err != nil {
					t.Fatal(r.err)
				}
				if after := r.at.Sub(at); compacted != (after >= kit.LockDelay-kit.Prompt) {
					t.Errorf("it held after %v", after)
				}
				mustRelease(t, r.h)
			})
		})
	}
}

// The mark of the oldest holder is older than the entries of those behind it. One of them has held and is revoked, and
// the waiter that would have told of that goes without a mark.
func TestWaiterDoesNotTrustAMarkForEntriesThatWerePutAfterIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		setLimit(t, srv, 2, 2)
		full := mustAcquire(t, start(t, srv).permits(2, 2))
		oldest := acquireLater(ctx, start(t, srv).permits(2, 1))
		kit.Queued(t, srv, permitsX, 2)
		mustRelease(t, full)
		marked := heldNow(t, oldest)
		kit.JoinPermit(t, srv, permitsX, 1) // holds
		revoked := srv.Keys(permitsX)[1].Lease
		between := kit.JoinPermit(t, srv, permitsX, 2)
		waiter := acquireLater(ctx, start(t, srv).permits(2, 1))
		kit.Queued(t, srv, permitsX, 4)
		srv.Revoke(clientv3.LeaseID(revoked))
		at := time.Now()
		between.Release()
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if after := r.at.Sub(at); after < kit.LockDelay {
			t.Errorf("it held %v after a permit ahead of it was revoked", after)
		}
		mustRelease(t, r.h)
		mustRelease(t, marked)
	})
}

// Whichever of them is canceled, and when: the others are served, and nothing is left.
func TestCanceledWaitersOfASemaphoreLeaveNothing(t *testing.T) {
	for at := time.Duration(0); at < 40*kit.OneWay; at += kit.OneWay / 2 {
		for who := range 3 {
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
		if _, err := srv.Client().Put(t.Context(), key, "", clientv3.WithLease(p.Host.Lease().ID())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		kit.NothingStands(t, srv)
	})
}
