package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
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
				for _, i := range order {
					cancels[i]()
					time.Sleep(20 * kit.OneWay)
				}
				mustRelease(t, h)
				mustRelease(t, heldNow(t, last))
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
		setLimit(t, srv, 2, 2)
		ahead, _ := kit.JoinPermit(t, srv, permitsX, 1), kit.JoinPermit(t, srv, permitsX, 1)
		first := acquireLater(ctx, start(t, srv).permits(2, 2))
		kit.Queued(t, srv, permitsX, 3)
		ahead.Revoke()
		time.Sleep(20 * kit.OneWay)
		second := acquireLater(kit.Within(t, time.Minute), start(t, srv).permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		giveUp()
		<-first
		mustRelease(t, heldNow(t, second))
	})
}

// The first waiter has heard that a permit was released, and its mark says so. That its session has ended since costs
// no delay.
func TestMarkOfAWaiterThatGivesUpCoversWhatItHasHeard(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		setLimit(t, srv, 2, 2)
		ahead, beside := start(t, srv), start(t, srv)
		a, b := mustAcquire(t, ahead.permits(2, 1)), mustAcquire(t, beside.permits(2, 1))
		first := acquireLater(ctx, start(t, srv).permits(2, 2))
		kit.Queued(t, srv, permitsX, 3)
		second := acquireLater(kit.Within(t, time.Minute), start(t, srv).permits(2, 2))
		kit.Queued(t, srv, permitsX, 4)
		mustRelease(t, a)
		time.Sleep(20 * kit.OneWay)
		giveUp()
		<-first
		time.Sleep(20 * kit.OneWay)
		mustClose(t, ahead)
		mustRelease(t, b)
		mustRelease(t, heldNow(t, second))
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

// A permit is released after the watch stands and before the read that follows, so the read finds that it is gone and
// the watch tells when. Its session stood then, so that it has ended since costs no delay.
func TestReleaseThatBothTheReadAndTheWatchTellIsJudgedAtItsRevision(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		setLimit(t, srv, 2, 2)
		ahead, beside, p := start(t, srv), start(t, srv), start(t, srv)
		a, b := mustAcquire(t, ahead.permits(2, 1)), mustAcquire(t, beside.permits(2, 1))
		p.PlanOne("read", etcdfake.Fate{Request: 20 * kit.OneWay})
		waiter := acquireLater(kit.Within(t, time.Minute), p.permits(2, 2))
		time.Sleep(10 * kit.OneWay)
		if n := p.Counts(); n["watch"] != 1 || n["read"] != 1 {
			t.Fatalf("sent %v: this tests nothing", n)
		}
		mustRelease(t, a)
		time.Sleep(40 * kit.OneWay)
		mustClose(t, ahead)
		mustRelease(t, b)
		mustRelease(t, heldNow(t, waiter))
	})
}
