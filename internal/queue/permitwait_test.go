package queue

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
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
		const limit = 10
		n := 1000
		if bubble.Race { // which makes it take eight times as long
			n = 200
		}
		ctx := kit.Within(t, time.Hour)
		setLimit(t, srv, limit, limit)
		holder, p := start(t, srv), start(t, srv)
		p.Link.Delay(kit.OneWay / 50) // so that all are served before a waiter looks again
		full := mustAcquire(t, holder.permits(limit, limit))
		got := make(chan result)
		for range n {
			go func() {
				h, err := p.permits(limit, 1).Acquire(ctx, Request{})
				got <- result{h: h, err: err}
			}()
		}
		kit.Queued(t, srv, permitsX, n+1)
		time.Sleep(time.Second) // the streams of their watches have grown
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
		p.Plan(nil)
		if err := other.permits(1, 1).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		a := heldNow(t, first)
		if n := p.Counts(); !maps.Equal(n, map[string]int{"event": 1, "mark": 1}) {
			t.Errorf("the first waiter sent %v", n)
		}
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
		q := start(t, srv)
		waiter := acquireLater(ctx, q.permits(2, 1))
		kit.Queued(t, srv, permitsX, 4)
		q.Plan(nil)
		mustRelease(t, holds[0])
		stillWaits(t, waiter) // two hold
		if n := q.Counts(); !maps.Equal(n, map[string]int{"event": 1}) {
			t.Errorf("for the release of one it sent %v", n)
		}
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

// There is room because the limit was raised, so nothing ahead has gone that would have to be judged. The waiter finds
// that its entry is gone, and queues again.
func TestWaiterWhoseEntryIsGoneWhenTheLimitIsRaisedQueuesAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		p, other := start(t, srv), start(t, srv)
		h := mustAcquire(t, p.permits(1, 1))
		waiter := acquireLater(ctx, other.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Delete(string(srv.Keys(permitsX)[1].Key))
		other.Plan(nil)
		if err := p.permits(1, 1).Resize(ctx, 2); err != nil {
			t.Fatal(err)
		}
		r := <-waiter
		if r.err != nil {
			t.Fatal(r.err)
		}
		if n := other.Counts(); n["mark"] != 2 || n["enqueue"] != 1 {
			t.Errorf("sent %v, want a mark that is refused, an enqueue, and the mark of the new entry", n)
		}
		mustRelease(t, r.h)
		mustRelease(t, h)
	})
}
