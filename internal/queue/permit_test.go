package queue_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// permitsX is the prefix of the entries of semaphore x.
var permitsX = kit.Permits("x")

// turnsX is the prefix of its turns.
var turnsX = kit.Turns("x")

// youngestTurn is the key of the turn of semaphore x that was put last.
func youngestTurn(srv *etcdfake.Server) string {
	var last *mvccpb.KeyValue
	for _, kv := range srv.Keys(turnsX) {
		if last == nil || kv.CreateRevision > last.CreateRevision {
			last = kv
		}
	}
	return string(last.Key)
}

// heldNow fails the test if the call has not returned a hold within a few round trips.
func heldNow(t *testing.T, done <-chan holdtest.Result) *hold.Hold {
	t.Helper()
	time.Sleep(20 * kit.OneWay)
	select {
	case r := <-done:
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.H
	default:
		t.Fatal("it waits")
		return nil
	}
}

func TestPermitsAreHeldTogetherUpToTheLimit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		one, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		a := holdtest.MustAcquire(t, one.Permits(3, 1))
		b := holdtest.MustAcquire(t, one.Permits(3, 2)) // of the same session
		c := holdtest.AcquireLater(ctx, other.Permits(3, 2))
		kit.Queued(t, srv, permitsX, 3)
		d := holdtest.AcquireLater(ctx, other.Permits(3, 1))
		kit.Queued(t, srv, permitsX, 4)
		holdtest.MustRelease(t, a)
		holdtest.StaysQueued(t, c, "the permit of weight 2")
		holdtest.StaysQueued(t, d, "the one behind it, for which there is room")
		holdtest.MustRelease(t, b)
		holdtest.MustRelease(t, heldNow(t, c))
		holdtest.MustRelease(t, heldNow(t, d))
		kit.NothingStands(t, srv)
	})
}

func TestWaitersOfASemaphoreAreServedInOrder(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const n, limit = 12, 3
		ctx := kit.Within(t, time.Hour)
		one, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		got, queued := make(chan struct{}, n), make(chan struct{})
		for i := range n {
			go func() {
				h, err := hold.Acquire(ctx, []*holdtest.Process{one, other}[i%2].Permits(limit, 1), hold.Request{})
				if err != nil {
					t.Error(err)
					return
				}
				got <- struct{}{}
				<-queued
				time.Sleep(time.Duration(n-i) * 10 * kit.OneWay) // they do not end in order
				if err := h.Release(ctx); err != nil {
					t.Error(err)
				}
			}()
			kit.Queued(t, srv, permitsX, i+1)
		}
		close(queued)
		for range n {
			<-got
		}
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
		admittedInOrder(t, srv)
	})
}

func TestRequestsOfPermits(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := holdtest.Start(t, srv)
		expect := func(step string, p *holdtest.Process, want map[string]int, do func()) {
			t.Helper()
			p.Plan(nil)
			do()
			if n := p.Counts(); !maps.Equal(n, want) {
				t.Errorf("%s: %v, want %v", step, n, want)
			}
		}
		holdtest.MustRelease(t, holdtest.MustAcquire(t, p.Permits(2, 1))) // which puts the limit
		q := p.Permits(2, 1)
		var a, b *hold.Hold
		expect("free", p, map[string]int{"enqueue": 1, "remove": 1},
			func() { holdtest.MustRelease(t, holdtest.MustAcquire(t, q)) })
		a, b = holdtest.MustAcquire(t, q), holdtest.MustAcquire(t, q)

		first, second := holdtest.Start(t, srv), holdtest.Start(t, srv)
		var waits, waitsToo <-chan holdtest.Result
		expect("its permit does not fit", first, map[string]int{"enqueue": 1, "hand-off": 1, "watch": 1, "read": 1}, func() {
			waits = holdtest.AcquireLater(ctx, first.Permits(2, 1))
			kit.Queued(t, srv, permitsX, 3)
		})
		expect("behind the front", second, map[string]int{"enqueue": 1, "watch": 1, "read": 1}, func() {
			waitsToo = holdtest.AcquireLater(ctx, second.Permits(2, 1))
			kit.Queued(t, srv, permitsX, 4)
		})
		first.Plan(nil)
		expect("it becomes the front", second, map[string]int{"event": 1, "watch": 1, "read": 2}, func() {
			holdtest.MustRelease(t, a)
			a = heldNow(t, waits)
		})
		if n := first.Counts(); n["read"] != 1 || n["mark"] != 1 || n["watch"] != 0 {
			t.Errorf("the front looks, and marks its turn: %v", n)
		}
		expect("it is admitted", second, map[string]int{"event": 1, "read": 1, "mark": 1}, func() {
			holdtest.MustRelease(t, b)
			b = heldNow(t, waitsToo)
		})
		expect("release", second, map[string]int{"remove": 1}, func() { holdtest.MustRelease(t, b) })
		holdtest.MustRelease(t, a)
	})
}

func TestTryPermit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := holdtest.Start(t, srv)
		h, err := holdtest.TryAcquire(ctx, p.Permits(2, 2))
		if err != nil {
			t.Fatal(err)
		}
		p.Plan(nil)
		_, err = holdtest.TryAcquire(ctx, p.Permits(2, 1))
		place, err := queue.Without(err)
		if !errors.Is(err, queue.ErrOccupied) || place.Ahead != 1 || place.Holder.Key != h.Key() {
			t.Errorf("%v, place %v", err, place)
		}
		if n := p.Counts(); !maps.Equal(n, map[string]int{"read": 1}) {
			t.Errorf("sent %v", n)
		}
		waits := holdtest.AcquireLater(ctx, p.Permits(2, 2))
		kit.Queued(t, srv, permitsX, 2)
		holdtest.MustRelease(t, h)
		h = heldNow(t, waits)
		holdtest.MustRelease(t, h)
	})
}

// More permits may be held than the limit that the program names: so many are read.
func TestTryPermitCountsWhatIsHeldByAHigherLimitOfThePast(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 2)
		p := holdtest.Start(t, srv)
		var peers []*kit.Peer
		for range 4 {
			peers = append(peers, kit.JoinPermit(t, srv, permitsX, 1))
		}
		if _, err := holdtest.TryAcquire(t.Context(), p.Permits(2, 1)); !errors.Is(err, queue.ErrOccupied) {
			t.Errorf("four hold: %v", err)
		}
		for _, peer := range peers[1:] {
			peer.Release()
		}
		h, err := holdtest.TryAcquire(t.Context(), p.Permits(2, 1))
		if err != nil {
			t.Fatal(err)
		}
		holdtest.MustRelease(t, h)
	})
}

// Both read that there is room, and then both put their entry.
func TestOfTwoThatTryAtOnceOneHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		kit.SetLimit(t, srv, 1)
		got := make(chan holdtest.Result, 2)
		for _, p := range []*holdtest.Process{holdtest.Start(t, srv), holdtest.Start(t, srv)} {
			go func() {
				h, err := holdtest.TryAcquire(ctx, p.Permits(1, 1))
				got <- holdtest.Result{H: h, Err: err}
			}()
		}
		a, b := <-got, <-got
		if a.Err != nil {
			a, b = b, a
		}
		if a.Err != nil || !errors.Is(b.Err, queue.ErrOccupied) {
			t.Fatal(a.Err, b.Err)
		}
		holdtest.MustRelease(t, a.H)
		time.Sleep(time.Second)
		kit.NothingStands(t, srv)
	})
}

// The turn is put after TryAcquire has read that no caller waits.
func TestTryPermitDoesNotPassATurnThatIsPutMeanwhile(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(2, 1))
		p := holdtest.Start(t, srv)
		p.PlanOne("enqueue", etcdfake.Fate{Request: 30 * kit.OneWay})
		tried := make(chan error, 1)
		go func() {
			_, err := holdtest.TryAcquire(ctx, p.Permits(2, 1))
			tried <- err
		}()
		time.Sleep(5 * kit.OneWay)
		heavy := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 2))
		kit.Queued(t, srv, permitsX, 2)
		if err := <-tried; !errors.Is(err, queue.ErrOccupied) {
			t.Errorf("TryAcquire: %v", err)
		}
		holdtest.MustRelease(t, h)
		holdtest.MustRelease(t, heldNow(t, heavy))
		kit.NothingStands(t, srv)
	})
}

// There is room for the newcomer, and none for the heavy one that waits.
func TestNewcomerDoesNotPassATurnThatWaits(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(3, 2))
		heavy := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(3, 3))
		kit.Queued(t, srv, permitsX, 2)
		newcomer := holdtest.Start(t, srv)
		light := holdtest.AcquireLater(ctx, newcomer.Permits(3, 1))
		stillWaits(t, light)
		if _, err := holdtest.TryAcquire(ctx, newcomer.Permits(3, 1)); !errors.Is(err, queue.ErrOccupied) {
			t.Errorf("TryAcquire: %v", err)
		}
		holdtest.MustRelease(t, h)
		holdtest.MustRelease(t, heldNow(t, heavy))
		holdtest.MustRelease(t, heldNow(t, light))
	})
}
