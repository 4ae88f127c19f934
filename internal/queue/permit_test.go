package queue

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// permitsX is the prefix of the entries of semaphore x, and limitX the key of its limit.
var permitsX, limitX = kit.Permits("x"), "holdfast/sem/x/@limit"

// permits is the queue of a semaphore for callers that ask for weight of limit.
func (p *process) permits(limit, weight int) *Queue {
	return NewSemaphore(p.Host, "x", limit).Permits(weight)
}

// setLimit puts the limit of semaphore x by hand.
func setLimit(t *testing.T, srv *etcdfake.Server, limit, high int) {
	t.Helper()
	if _, err := srv.Client(t).Put(t.Context(), limitX, layout.Limit{Permits: limit, High: high}.String()); err != nil {
		t.Fatal(err)
	}
}

// heldNow fails the test if the call has not returned a hold within a few round trips.
func heldNow(t *testing.T, done <-chan result) *Hold {
	t.Helper()
	time.Sleep(20 * kit.OneWay)
	select {
	case r := <-done:
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.h
	default:
		t.Fatal("it waits")
		return nil
	}
}

func TestPermitsAreHeldTogetherUpToTheLimit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		one, other := start(t, srv), start(t, srv)
		a := mustAcquire(t, one.permits(3, 1))
		b := mustAcquire(t, one.permits(3, 2)) // of the same session
		c := acquireLater(ctx, other.permits(3, 2))
		kit.Queued(t, srv, permitsX, 3)
		d := acquireLater(ctx, other.permits(3, 1))
		kit.Queued(t, srv, permitsX, 4)
		mustRelease(t, a)
		staysQueued(t, c, "the permit of weight 2")
		staysQueued(t, d, "the one behind it, for which there is room")
		mustRelease(t, b)
		mustRelease(t, heldNow(t, c))
		mustRelease(t, heldNow(t, d))
		kit.NothingStands(t, srv)
	})
}

func TestWaitersOfASemaphoreAreServedInOrder(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const n, limit = 12, 3
		ctx := kit.Within(t, time.Hour)
		one, other := start(t, srv), start(t, srv)
		got, queued := make(chan int, n), make(chan struct{})
		for i := range n {
			go func() {
				h, err := []*process{one, other}[i%2].permits(limit, 1).Acquire(ctx, Request{})
				if err != nil {
					t.Error(err)
					return
				}
				got <- i
				<-queued
				time.Sleep(time.Duration(n-i) * 10 * kit.OneWay) // they do not end in order
				if err := h.Release(ctx); err != nil {
					t.Error(err)
				}
			}()
			kit.Queued(t, srv, permitsX, i+1)
		}
		close(queued)
		for i := range n {
			if next := <-got; next != i {
				t.Errorf("%d was served as number %d", next, i)
			}
		}
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
	})
}

func TestRequestsOfPermits(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := start(t, srv)
		expect := func(step string, p *process, want map[string]int, do func()) {
			t.Helper()
			p.Plan(nil)
			do()
			if n := p.Counts(); !maps.Equal(n, want) {
				t.Errorf("%s: %v, want %v", step, n, want)
			}
		}
		mustRelease(t, mustAcquire(t, p.permits(2, 1))) // which puts the limit
		q := p.permits(2, 1)
		var a, b *Hold
		expect("free", p, map[string]int{"enqueue": 1, "remove": 1}, func() { mustRelease(t, mustAcquire(t, q)) })
		a, b = mustAcquire(t, q), mustAcquire(t, q)

		first, second := start(t, srv), start(t, srv)
		var waits, waitsToo <-chan result
		expect("the first waiter", first, map[string]int{"enqueue": 1, "watch": 1, "read": 1}, func() {
			waits = acquireLater(ctx, first.permits(2, 1))
			kit.Queued(t, srv, permitsX, 3)
		})
		expect("a far one", second, map[string]int{"enqueue": 1, "watch": 1, "read": 1}, func() {
			waitsToo = acquireLater(ctx, second.permits(2, 1))
			kit.Queued(t, srv, permitsX, 4)
		})
		expect("a far one becomes the first", second, map[string]int{"event": 1, "watch": 1, "read": 1}, func() {
			expect("the first waiter holds", first, map[string]int{"event": 1, "mark": 1}, func() {
				mustRelease(t, a)
				a = heldNow(t, waits)
			})
		})
		expect("it holds", second, map[string]int{"event": 1, "mark": 1}, func() {
			mustRelease(t, b)
			b = heldNow(t, waitsToo)
		})
		expect("release", second, map[string]int{"remove": 1}, func() { mustRelease(t, b) })
		mustRelease(t, a)
	})
}

func TestTryPermit(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := start(t, srv)
		h, err := p.permits(2, 2).TryAcquire(ctx, Request{})
		if err != nil {
			t.Fatal(err)
		}
		p.Plan(nil)
		_, err = p.permits(2, 1).TryAcquire(ctx, Request{})
		place, err := WithoutPlace(err)
		if !errors.Is(err, ErrOccupied) || place.Ahead != 1 || place.Holder.Key != h.Key() {
			t.Errorf("%v, place %v", err, place)
		}
		if n := p.Counts(); !maps.Equal(n, map[string]int{"read": 1}) {
			t.Errorf("sent %v", n)
		}
		waits := acquireLater(ctx, p.permits(2, 2))
		kit.Queued(t, srv, permitsX, 2)
		mustRelease(t, h)
		h = heldNow(t, waits)
		mustRelease(t, h)
	})
}

// More permits may be held than the limit that the program names: so many are read.
func TestTryPermitCountsWhatIsHeldByAHigherLimitOfThePast(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		setLimit(t, srv, 2, 4)
		p := start(t, srv)
		var peers []*kit.Peer
		for range 4 {
			peers = append(peers, kit.JoinPermit(t, srv, permitsX, 1))
		}
		if _, err := p.permits(2, 1).TryAcquire(t.Context(), Request{}); !errors.Is(err, ErrOccupied) {
			t.Errorf("four hold: %v", err)
		}
		for _, peer := range peers[1:] {
			peer.Release()
		}
		h, err := p.permits(2, 1).TryAcquire(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		mustRelease(t, h)
	})
}

// Both read that there is room, and then both put their entry.
func TestOfTwoThatTryAtOnceOneHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		setLimit(t, srv, 1, 1)
		got := make(chan result, 2)
		for _, p := range []*process{start(t, srv), start(t, srv)} {
			go func() {
				h, err := p.permits(1, 1).TryAcquire(ctx, Request{})
				got <- result{h: h, err: err}
			}()
		}
		a, b := <-got, <-got
		if a.err != nil {
			a, b = b, a
		}
		if a.err != nil || !errors.Is(b.err, ErrOccupied) {
			t.Fatal(a.err, b.err)
		}
		mustRelease(t, a.h)
		time.Sleep(time.Second)
		kit.NothingStands(t, srv)
	})
}

func TestLockDelayOfPermits(t *testing.T) {
	for _, ahead := range []int{2, 4} {
		for revoked := range ahead + 1 {
			t.Run(fmt.Sprintf("%d ahead, revoked %d", ahead, revoked), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					setLimit(t, srv, 2, 2)
					var peers []*kit.Peer
					for range ahead {
						peers = append(peers, kit.JoinPermit(t, srv, permitsX, 1))
					}
					done := acquireLater(kit.Within(t, time.Minute), start(t, srv).permits(2, 2))
					kit.Queued(t, srv, permitsX, ahead+1)
					for i, p := range peers {
						if i == revoked {
							p.Revoke()
						} else {
							p.Release()
						}
						time.Sleep(2 * kit.OneWay)
					}
					r := <-done
					if r.err != nil {
						t.Fatal(r.err)
					}
					after := r.at.Sub(kit.DeletedAt(t, srv, peers[ahead-1].Key))
					// Behind four, it is far, and the youngest goes without a mark.
					if delays := revoked < ahead || ahead > 2; delays != (after >= kit.LockDelay-10*kit.OneWay) {
						t.Errorf("granted %v after the last one ahead had left", after)
					}
					mustRelease(t, r.h)
				})
			})
		}
	}
}
