package queue_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func stillWaits(t *testing.T, done <-chan holdtest.Result) {
	t.Helper()
	time.Sleep(20 * kit.OneWay)
	select {
	case r := <-done:
		t.Fatalf("it was granted, error %v", r.Err)
	default:
	}
}

// Each waiter is told once, whatever happens behind and ahead of the one it waits for.
func TestWaitersOfASemaphoreCostConstantRequestsEach(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const limit = 10
		n := 1000
		if bubble.Race { // which makes it take eight times as long
			n = 200
		}
		ctx := kit.Within(t, time.Hour)
		kit.SetLimit(t, srv, limit, limit)
		holder, p := holdtest.Start(t, srv), holdtest.Start(t, srv)
		p.Link.Delay(kit.OneWay / 50) // so that all are served before a waiter looks again
		full := holdtest.MustAcquire(t, holder.Permits(limit, limit))
		got := make(chan holdtest.Result)
		for range n {
			go func() {
				h, err := hold.AcquireOne(ctx, p.Permits(limit, 1), hold.Request{})
				got <- holdtest.Result{H: h, Err: err}
			}()
		}
		kit.Queued(t, srv, permitsX, n+1)
		time.Sleep(time.Second) // the streams of their watches have grown
		p.Plan(nil)
		holdtest.MustRelease(t, full)
		last := int64(0)
		for range n {
			r := <-got
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if rev := r.H.Created(); rev < last {
				t.Errorf("the entry of revision %d held after that of %d", rev, last)
			} else {
				last = rev
			}
			holdtest.MustRelease(t, r.H)
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

// The limit was 1,000 and is 1. Those that queued since then know of each other that they wait, so each is told by the
// one ahead of it alone.
func TestWaitersAfterALoweredLimitCostConstantMessagesEach(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const n = 50
		ctx := kit.Within(t, time.Hour)
		p, waiting := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(1000, 1))
		if err := p.Semaphore(1000).Resize(ctx, 1); err != nil {
			t.Fatal(err)
		}
		got := make(chan holdtest.Result)
		for i := range n {
			go func() {
				h, err := hold.AcquireOne(ctx, waiting.Permits(1, 1), hold.Request{})
				got <- holdtest.Result{H: h, Err: err}
			}()
			kit.Queued(t, srv, permitsX, i+2)
		}
		waiting.Plan(nil)
		for range n {
			holdtest.MustRelease(t, h)
			r := <-got
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			h = r.H
		}
		holdtest.MustRelease(t, h)
		if events := waiting.Counts()["event"]; events > 4*n {
			t.Errorf("%d waiters were sent %d events", n, events)
		}
	})
}

// The limit was 1,000, then 1, and is 2. Those that queued at 1 wait since then, and each knows it of the one ahead. So
// when every second one of them gives up, the next one neither delays nor watches all.
func TestWaitersThatGiveUpAfterTheLimitWasChangedTwiceCostNoDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const n = 40
		ctx := kit.Within(t, time.Hour)
		p, waiting := holdtest.Start(t, srv), holdtest.Start(t, srv)
		holdtest.MustRelease(t, holdtest.MustAcquire(t, p.Permits(1000, 1)))
		resize := func(from, to int) {
			if err := p.Semaphore(from).Resize(ctx, to); err != nil {
				t.Fatal(err)
			}
		}
		resize(1000, 1)
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		var got []<-chan holdtest.Result
		var cancels []context.CancelFunc
		for i := range n {
			c, cancel := context.WithCancel(ctx)
			defer cancel()
			got, cancels = append(got, holdtest.AcquireLater(c, waiting.Permits(1, 1))), append(cancels, cancel)
			kit.Queued(t, srv, permitsX, i+2)
		}
		resize(1, 2)
		holdtest.MustRelease(t, h)
		holds := []*hold.Hold{heldNow(t, got[0]), heldNow(t, got[1])}
		for i := 3; i < n; i += 2 {
			cancels[i]()
			<-got[i]
		}
		waiting.Plan(nil)
		for i := 2; i < n; i += 2 {
			holdtest.MustRelease(t, holds[0])
			holds = append(holds[1:], heldNow(t, got[i]))
		}
		if events := waiting.Counts()["event"]; events > 4*n {
			t.Errorf("%d waiters were sent %d events", n/2, events)
		}
		for _, h := range holds {
			holdtest.MustRelease(t, h)
		}
	})
}

func TestResizeWakesTheFirstWaiter(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		first := holdtest.AcquireLater(ctx, p.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		second := holdtest.AcquireLater(ctx, other.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 3)
		p.Plan(nil)
		if err := other.Semaphore(1).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		a := heldNow(t, first)
		n := p.Counts()
		delete(n, "poll") // of the first permit
		if !maps.Equal(n, map[string]int{"event": 1, "mark": 1}) {
			t.Errorf("the first waiter sent %v", n)
		}
		stillWaits(t, second)
		if err := other.Semaphore(2).Resize(ctx, 3); err != nil {
			t.Fatal(err)
		}
		b := heldNow(t, second)
		for _, h := range []*hold.Hold{h, a, b} {
			holdtest.MustRelease(t, h)
		}
	})
}

// Three hold, and none of them has a mark. So the one that queues after the limit was lowered cannot know that they
// hold, and must watch all of them.
func TestWaiterBehindMoreHoldersThanTheLimitIsWoken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := holdtest.Start(t, srv)
		holds := []*hold.Hold{holdtest.MustAcquire(t, p.Permits(3, 1)), holdtest.MustAcquire(t, p.Permits(3, 1)),
			holdtest.MustAcquire(t, p.Permits(3, 1))}
		if err := p.Semaphore(3).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		q := holdtest.Start(t, srv)
		waiter := holdtest.AcquireLater(ctx, q.Permits(2, 1))
		kit.Queued(t, srv, permitsX, 4)
		q.Plan(nil)
		holdtest.MustRelease(t, holds[0])
		stillWaits(t, waiter) // two hold
		if n := q.Counts(); !maps.Equal(n, map[string]int{"event": 1}) {
			t.Errorf("for the release of one it sent %v", n)
		}
		holdtest.MustRelease(t, holds[1])
		h := heldNow(t, waiter)
		holdtest.MustRelease(t, h)
		holdtest.MustRelease(t, holds[2])
	})
}

// The limit is lowered after the waiter has heard that there is room, and before it holds.
func TestWaiterIsNotAdmittedAboveALimitThatWasJustLowered(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p, q := holdtest.Start(t, srv), holdtest.Start(t, srv)
		a, b := holdtest.MustAcquire(t, p.Permits(2, 1)), holdtest.MustAcquire(t, p.Permits(2, 1))
		waiter := holdtest.AcquireLater(ctx, q.Permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		q.PlanOne("mark", etcdfake.Fate{Request: 50 * kit.OneWay})
		holdtest.MustRelease(t, a)
		if err := p.Semaphore(2).Resize(ctx, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * kit.OneWay)
		stillWaits(t, waiter)
		holdtest.MustRelease(t, b)
		holdtest.MustRelease(t, heldNow(t, waiter))
	})
}

func TestWaiterWhoseWeightIsAboveALoweredLimitFailsAndLeaves(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(3, 1))
		heavy := holdtest.AcquireLater(ctx, p.Permits(3, 3))
		kit.Queued(t, srv, permitsX, 2)
		light := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(3, 1))
		kit.Queued(t, srv, permitsX, 3)
		if err := p.Semaphore(3).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		var limit *holdfast.LimitError
		if r := <-heavy; !errors.As(r.Err, &limit) || limit.Limit != 2 || limit.Weight != 3 {
			t.Errorf("%v", r.Err)
		}
		holdtest.MustRelease(t, heldNow(t, light))
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}

// There is room because the limit was raised, so nothing ahead has gone that would have to be judged. The waiter finds
// that its entry is gone, and queues again.
func TestWaiterWhoseEntryIsGoneWhenTheLimitIsRaisedQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		waiter := holdtest.AcquireLater(ctx, other.Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Delete(string(srv.Keys(permitsX)[1].Key))
		other.Plan(nil)
		if err := p.Semaphore(1).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		r := <-waiter
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if n := other.Counts(); n["mark"] != 2 || n["enqueue"] != 1 {
			t.Errorf("sent %v, want a mark that is refused, an enqueue, and the mark of the new entry", n)
		}
		holdtest.MustRelease(t, r.H)
		holdtest.MustRelease(t, h)
	})
}
