package queue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Another goroutine of the session may hold by the time at which etcd carries out the read of TryAcquire. Then no entry
// is left over.
func TestTryAcquireBesideAnotherGoroutineSaysThatTheNameIsHeld(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		p.PlanOne("read", etcdfake.Fate{Request: 10 * kit.OneWay})
		tried := make(chan error)
		go func() {
			_, err := Set{q}.TryAcquire(kit.Within(t, kit.TTL), Request{})
			tried <- err
		}()
		synctest.Wait() // the read is sent
		h := mustAcquire(t, q)
		if err := <-tried; !errors.Is(err, ErrOccupied) {
			t.Errorf("TryAcquire: %v, want ErrOccupied", err)
		}
		mustHandOff(t, h)
	})
}

// Another goroutine of the session queues after etcd has read that the name is free, and before TryAcquire knows it.
func TestTryAcquireThatAnotherGoroutineOvertakesDoesNotWaitInItsLine(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		p.PlanOne("read", etcdfake.Fate{Reply: 10 * kit.OneWay})
		tried := make(chan error)
		go func() {
			_, err := Set{q}.TryAcquire(kit.Within(t, kit.TTL), Request{})
			tried <- err
		}()
		time.Sleep(2 * kit.OneWay) // the read is carried out
		h := mustAcquire(t, q)
		if err := <-tried; !errors.Is(err, ErrOccupied) {
			t.Errorf("TryAcquire: %v, want ErrOccupied", err)
		}
		mustHandOff(t, h)
	})
}

// A place says of which queue it is, where there are several.
func TestTryAcquireNamesTheQueueThatThisSessionHoldsAmongSeveral(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		for want, set := range map[string]Set{"": {p.queue("x")}, "x": {p.queue("a"), p.queue("x")}} {
			_, err := set.TryAcquire(kit.Within(t, kit.TTL), Request{})
			if place, _ := Without(err); !errors.Is(err, ErrOccupied) || !place.Known() || place.Name != want {
				t.Errorf("of %d: %v, %+v, want the name %q", len(set), err, place, want)
			}
		}
		mustHandOff(t, h)
	})
}

// TryAcquire asks etcd for the place behind a goroutine that waits. Close must not wait for that answer.
func TestCloseEndsATryAcquireThatAsksForItsPlace(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		h := mustAcquire(t, other.queue("x"))
		waiting := make(chan error, 1)
		go func() {
			_, err := Set{p.queue("x")}.Acquire(t.Context(), Request{})
			waiting <- err
		}()
		time.Sleep(4 * kit.OneWay) // its entry stands
		p.Link.BlackHole()
		tried := make(chan error, 1)
		go func() {
			_, err := Set{p.queue("x")}.TryAcquire(t.Context(), Request{})
			tried <- err
		}()
		synctest.Wait() // the read is sent
		go p.Sess.Close(t.Context())
		synctest.Wait()
		select {
		case err := <-tried:
			if !errors.Is(err, ErrOccupied) {
				t.Errorf("TryAcquire: %v, want ErrOccupied", err)
			}
		default:
			t.Error("TryAcquire waits for etcd, although the session is closed")
		}
		p.Heal()
		<-waiting
		mustHandOff(t, h)
	})
}
