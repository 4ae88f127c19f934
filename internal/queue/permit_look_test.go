package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/view"
)

func TestWaiterOfASemaphoreIsToldItsPlace(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		full := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
		var told atomic.Pointer[view.Place]
		r := hold.Request{Request: queue.Request{OnWait: func(place view.Place) { told.Store(&place) }}}
		if _, err := hold.Acquire(kit.Within(t, time.Second), holdtest.Start(t, srv).Permits(1, 1), r); err == nil {
			t.Fatal("there was room")
		}
		if place := told.Load(); place == nil || place.Ahead != 1 || place.Holder.Key != full.Key() {
			t.Errorf("%+v", place)
		}
		holdtest.MustRelease(t, full)
	})
}

// It reads the nearest ahead of the one that has gone, and not the whole queue, watches that, and is woken by it.
func TestTurnBehindOneThatGivesUpFollowsTheNextAhead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		full := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(2, 2))
		front := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 2)
		ctx, cancel := context.WithCancel(t.Context())
		middle := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		p := holdtest.Start(t, srv)
		last := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Permits(2, 1))
		kit.Queued(t, srv, permitsX, 4)
		time.Sleep(20 * kit.OneWay)
		var looks, wide atomic.Int32
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if kit.KindOf(c) == "read" {
				looks.Add(1)
				if len(c.Request.(*pb.TxnRequest).Success) > 1 {
					wide.Add(1)
				}
			}
			return etcdfake.Fate{}
		})
		cancel()
		<-middle
		time.Sleep(20 * kit.OneWay)
		if looks.Load() == 0 || wide.Load() > 0 {
			t.Errorf("%d of %d looks read the whole queue", wide.Load(), looks.Load())
		}
		released := time.Now()
		holdtest.MustRelease(t, full)
		for _, done := range []<-chan holdtest.Result{front, last} {
			r := <-done
			if took := r.At.Sub(released); r.Err != nil || took > 12*kit.OneWay {
				t.Errorf("after %v: %v", took, r.Err)
			}
			holdtest.MustRelease(t, r.H)
		}
	})
}

// If the front hangs, others look after it: all together a few times a second, however many they are.
func TestTurnsLookAfterTheFrontAFewTimesASecond(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const turns, seconds = 40, 60
		full := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
		p := holdtest.Start(t, srv)
		var all []<-chan holdtest.Result
		for range turns {
			all = append(all, holdtest.AcquireLater(kit.Within(t, (seconds+10)*time.Second), p.Permits(1, 1)))
		}
		kit.Queued(t, srv, permitsX, turns+1)
		time.Sleep(5 * time.Second)
		p.Plan(nil)
		time.Sleep(seconds * time.Second)
		if n := p.Counts()["read"]; n < seconds || n > 20*seconds {
			t.Errorf("%d looks in %d s", n, seconds)
		}
		for _, done := range all {
			<-done
		}
		holdtest.MustRelease(t, full)
	})
}
