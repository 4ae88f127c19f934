package queue_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
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

// admittedInOrder fails the test if a turn was marked before an older one.
func admittedInOrder(t *testing.T, srv *etcdfake.Server) {
	t.Helper()
	marked := make(map[int64][]int64) // create revisions of turns, by the revision of their marks
	for _, c := range srv.History(turnsX) {
		if !c.Deleted && c.Kv.Version == 2 {
			marked[c.Revision] = append(marked[c.Revision], c.Kv.CreateRevision)
		}
	}
	last := int64(0)
	for _, rev := range slices.Sorted(maps.Keys(marked)) {
		if first := slices.Min(marked[rev]); first < last {
			t.Errorf("the turn of revision %d is admitted after that of %d", first, last)
		}
		last = slices.Max(marked[rev])
	}
	if len(marked) == 0 {
		t.Error("none was admitted: this tests nothing")
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
		kit.SetLimit(t, srv, limit)
		holder, p := holdtest.Start(t, srv), holdtest.Start(t, srv)
		p.Link.Delay(kit.OneWay / 50) // so that all are served before a waiter looks again
		full := holdtest.MustAcquire(t, holder.Permits(limit, limit))
		got := make(chan holdtest.Result)
		for range n {
			go func() {
				h, err := hold.Acquire(ctx, p.Permits(limit, 1), hold.Request{})
				got <- holdtest.Result{H: h, Err: err}
			}()
		}
		kit.Queued(t, srv, permitsX, n+1)
		time.Sleep(time.Second) // the streams of their watches have grown
		p.Plan(nil)
		holdtest.MustRelease(t, full)
		for range n {
			r := <-got
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			holdtest.MustRelease(t, r.H)
		}
		sent := p.Counts()
		most := map[string]int{"read": 2 * n, "watch": n, "mark": n / 2, "remove": n, "enqueue": 0, "event": 2 * n}
		for kind, most := range most {
			if sent[kind] > most+n/10 {
				t.Errorf("%d waiters sent %v, want %s at most %d times", n, sent, kind, most)
			}
		}
		kit.NothingStands(t, srv)
		admittedInOrder(t, srv)
	})
}

func TestResizeWakesTheFront(t *testing.T) {
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
		delete(n, "poll")  // of the first permit
		delete(n, "event") // of its own mark, too
		if !maps.Equal(n, map[string]int{"read": 1, "mark": 1}) {
			t.Errorf("the front sent %v", n)
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

// Three hold, and the limit was lowered. The front looks for each that goes.
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
		if n := q.Counts(); !maps.Equal(n, map[string]int{"event": 1, "read": 1}) {
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

// It would have to queue again, and its program names another limit than there is by now.
func TestWaiterWhoseTurnIsGoneWhenTheLimitIsRaisedFails(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Delete(youngestTurn(srv))
		if err := p.Semaphore(1).Resize(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if r := <-waiter; !errors.As(r.Err, new(*holdfast.LimitError)) {
			t.Error(r.Err)
		}
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}
