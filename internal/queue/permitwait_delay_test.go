package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The first waiter leaves a mark, so the next one knows what it has judged. One that is far leaves none, and the one
// behind it finds that it is still far. So the last one holds as soon as there is room, in whatever order they leave.
func TestWaitersThatGiveUpCostNoDelay(t *testing.T) {
	for name, order := range map[string][]int{
		"the first one first": {0, 1, 2, 3}, "the first one last": {3, 2, 1, 0}, "in between": {1, 0, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Hour)
				p := holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, p.Permits(1, 1))
				var last <-chan holdtest.Result
				var cancels []context.CancelFunc
				for i := range 5 {
					c, cancel := context.WithCancel(ctx)
					cancels = append(cancels, cancel)
					last = holdtest.AcquireLater(c, holdtest.Start(t, srv).Permits(1, 1))
					kit.Queued(t, srv, permitsX, i+2)
				}
				for _, i := range order {
					cancels[i]()
					time.Sleep(20 * kit.OneWay)
				}
				holdtest.MustRelease(t, h)
				holdtest.MustRelease(t, heldNow(t, last))
				cancels[4]()
			})
		})
	}
}

// What was revoked before the second waiter queued is none of its concern. The first one has not judged that when it
// gives up, and its mark says from where on the second one has to.
func TestWaiterDoesNotDelayForWhatWasRevokedBeforeItQueued(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		kit.SetLimit(t, srv, 2, 2)
		ahead, _ := kit.JoinPermit(t, srv, permitsX, 1), kit.JoinPermit(t, srv, permitsX, 1)
		first := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 2))
		kit.Queued(t, srv, permitsX, 3)
		ahead.Revoke()
		time.Sleep(20 * kit.OneWay)
		second := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		giveUp()
		<-first
		holdtest.MustRelease(t, heldNow(t, second))
	})
}

// Nothing is left of the permit that was revoked, so who queues now waits for the other one only.
func TestWaiterThatQueuedAfterARevocationWaitsForThoseWhoHoldOnly(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 2, 2)
		revoked, beside := kit.JoinPermit(t, srv, permitsX, 1), kit.JoinPermit(t, srv, permitsX, 1)
		revoked.Revoke()
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 2))
		kit.Queued(t, srv, permitsX, 2)
		stillWaits(t, waiter)
		beside.Release()
		holdtest.MustRelease(t, heldNow(t, waiter))
	})
}

// The first waiter has heard that a permit was released, and its mark says so. That its session has ended since costs
// no delay.
func TestMarkOfAWaiterThatGivesUpCoversWhatItHasHeard(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		kit.SetLimit(t, srv, 2, 2)
		ahead, beside := holdtest.Start(t, srv), holdtest.Start(t, srv)
		a, b := holdtest.MustAcquire(t, ahead.Permits(2, 1)), holdtest.MustAcquire(t, beside.Permits(2, 1))
		first := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 2))
		kit.Queued(t, srv, permitsX, 3)
		second := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 2))
		kit.Queued(t, srv, permitsX, 4)
		holdtest.MustRelease(t, a)
		time.Sleep(20 * kit.OneWay)
		giveUp()
		<-first
		time.Sleep(20 * kit.OneWay)
		holdtest.MustClose(t, ahead)
		holdtest.MustRelease(t, b)
		holdtest.MustRelease(t, heldNow(t, second))
	})
}

// The second waiter has never seen the first holder, whose lease was revoked. The first waiter had, and its mark says
// so.
func TestWaiterDelaysForAPermitThatWasRevokedBeforeItWasFirst(t *testing.T) {
	for name, revoked := range map[string]bool{"revoked": true, "released": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Hour)
				kit.SetLimit(t, srv, 2, 2)
				ahead, beside := kit.JoinPermit(t, srv, permitsX, 1), kit.JoinPermit(t, srv, permitsX, 1)
				p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
				first := holdtest.AcquireLater(ctx, p.Permits(2, 1))
				kit.Queued(t, srv, permitsX, 3)
				second := holdtest.AcquireLater(ctx, q.Permits(2, 1))
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
				if a.Err != nil || b.Err != nil {
					t.Fatal(a.Err, b.Err)
				}
				if after := b.At.Sub(at); revoked != (after >= kit.LockDelay) {
					t.Errorf("the second waiter held after %v", after)
				}
				holdtest.MustRelease(t, a.H)
				holdtest.MustRelease(t, b.H)
			})
		})
	}
}

// Two hold: the first after a wait, and the second since its put, when there was room for it. The second one is
// revoked, and then the mark of the first says up to a later revision what it has waited for: but of those ahead of it
// only. The third one leaves without a mark, as if its put had not been answered.
func TestMarkDoesNotSpeakOfPermitsBehindIt(t *testing.T) {
	for name, revoked := range map[string]bool{"revoked": true, "released": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				kit.SetLimit(t, srv, 3, 3)
				first, second := kit.JoinPermit(t, srv, permitsX, 1), kit.JoinPermit(t, srv, permitsX, 1)
				third := kit.JoinPermit(t, srv, permitsX, 2)
				waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(3, 2))
				kit.Queued(t, srv, permitsX, 4)
				end := (*kit.Peer).Release
				if revoked {
					end = (*kit.Peer).Revoke
				}
				end(second)
				at, gone := time.Now(), srv.History(second.Key)
				srv.Put(first.Key, layout.Value{Queued: at, Held: at, Mark: gone[len(gone)-1].Revision + 1}.Encode())
				third.Release()
				r := <-waiter
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if after := r.At.Sub(at); revoked != (after >= kit.LockDelay) {
					t.Errorf("it held after %v", after)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}

// The limit was lowered from three to one, so the put of the waiter reads two of the three that hold. It waits for the
// third one, too, which is revoked before its watch stands.
func TestWaiterDelaysForAPermitBeyondTheLimitThatItsPutDidNotRead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 3, 3)
		var ahead []*kit.Peer
		for range 3 {
			ahead = append(ahead, kit.JoinPermit(t, srv, permitsX, 1))
		}
		kit.SetLimit(t, srv, 1, 3)
		p := holdtest.Start(t, srv)
		q := p.Permits(1, 1)
		if _, err := holdtest.TryAcquire(kit.Within(t, time.Minute), q); err == nil {
			t.Fatal("there is room")
		} // it knows the limit now
		p.Plan(nil)
		p.PlanOne("read", etcdfake.Fate{Request: 20 * kit.OneWay}) // the look when its watch stands
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), q)
		time.Sleep(10 * kit.OneWay)
		if n := p.Counts(); n["enqueue"] != 1 || n["read"] != 1 {
			t.Fatalf("sent %v: this tests nothing", n)
		}
		ahead[2].Revoke()
		at := time.Now()
		ahead[0].Release()
		ahead[1].Release()
		r := <-waiter
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if after := r.At.Sub(at); after < kit.LockDelay {
			t.Errorf("it held %v after a permit ahead of it was revoked", after)
		}
		holdtest.MustRelease(t, r.H)
	})
}

// The first waiter wakes the second one only when the lock delay is over.
func TestAllWaitersBehindARevokedPermitDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		kit.SetLimit(t, srv, 3, 3)
		ahead := kit.JoinPermit(t, srv, permitsX, 3)
		var got []<-chan holdtest.Result
		for i := range 3 {
			got = append(got, holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(3, 1)))
			kit.Queued(t, srv, permitsX, i+2)
		}
		ahead.Revoke()
		at := time.Now()
		for i, done := range got {
			r := <-done
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if after := r.At.Sub(at); after < kit.LockDelay || after > kit.LockDelay+kit.Prompt {
				t.Errorf("waiter %d held %v after the permit ahead was revoked", i, after)
			}
			defer holdtest.MustRelease(t, r.H)
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
				kit.SetLimit(t, srv, 2, 2)
				ahead := kit.JoinPermit(t, srv, permitsX, 2)
				first := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 1))
				kit.Queued(t, srv, permitsX, 2)
				second := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1))
				kit.Queued(t, srv, permitsX, 3)
				ahead.Revoke()
				at := time.Now()
				time.Sleep(after)
				giveUp()
				if r := <-first; !errors.Is(r.Err, context.Canceled) {
					t.Fatal(r.Err)
				}
				r := <-second
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if took := r.At.Sub(at); took < kit.LockDelay {
					t.Errorf("the second waiter held %v after a permit ahead of it was revoked", took)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}

func TestWaiterDelaysIfWhatStoodAheadAtTheMarkIsCompacted(t *testing.T) {
	for name, compacted := range map[string]bool{"compacted": true, "not": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx := kit.Within(t, time.Minute)
				h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
				first := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(1, 1))
				kit.Queued(t, srv, permitsX, 2)
				p := holdtest.Start(t, srv)
				second := holdtest.AcquireLater(ctx, p.Permits(1, 1))
				kit.Queued(t, srv, permitsX, 3)
				p.PlanOne("read", etcdfake.Fate{Request: 20 * kit.OneWay}) // the one at the revision of the mark
				holdtest.MustRelease(t, h)
				held := heldNow(t, first)
				if compacted {
					srv.Put("other", "")
					srv.Compact()
				}
				holdtest.MustRelease(t, held)
				at := time.Now()
				r := <-second
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if after := r.At.Sub(at); compacted != (after >= kit.LockDelay-kit.Prompt) {
					t.Errorf("it held after %v", after)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}

// The mark of the oldest holder is older than the entries of those behind it. One of them has held and is revoked, and
// the waiter that would have told of that goes without a mark.
func TestWaiterDoesNotTrustAMarkForEntriesThatWerePutAfterIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		kit.SetLimit(t, srv, 2, 2)
		full := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(2, 2))
		oldest := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 2)
		holdtest.MustRelease(t, full)
		marked := heldNow(t, oldest)
		kit.JoinPermit(t, srv, permitsX, 1) // holds
		revoked := srv.Keys(permitsX)[1].Lease
		between := kit.JoinPermit(t, srv, permitsX, 2)
		waiter := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 4)
		srv.Revoke(clientv3.LeaseID(revoked))
		at := time.Now()
		between.Release()
		r := <-waiter
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if after := r.At.Sub(at); after < kit.LockDelay {
			t.Errorf("it held %v after a permit ahead of it was revoked", after)
		}
		holdtest.MustRelease(t, r.H)
		holdtest.MustRelease(t, marked)
	})
}

// A permit is released after the watch stands and before the read that follows, so the read finds that it is gone and
// the watch tells when. Its session stood then, so that it has ended since costs no delay.
func TestReleaseThatBothTheReadAndTheWatchTellIsJudgedAtItsRevision(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 2, 2)
		ahead, beside, p := holdtest.Start(t, srv), holdtest.Start(t, srv), holdtest.Start(t, srv)
		a, b := holdtest.MustAcquire(t, ahead.Permits(2, 1)), holdtest.MustAcquire(t, beside.Permits(2, 1))
		p.PlanOne("read", etcdfake.Fate{Request: 20 * kit.OneWay})
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Permits(2, 2))
		time.Sleep(10 * kit.OneWay)
		if n := p.Counts(); n["watch"] != 1 || n["read"] != 1 {
			t.Fatalf("sent %v: this tests nothing", n)
		}
		holdtest.MustRelease(t, a)
		time.Sleep(40 * kit.OneWay)
		holdtest.MustClose(t, ahead)
		holdtest.MustRelease(t, b)
		holdtest.MustRelease(t, heldNow(t, waiter))
	})
}
