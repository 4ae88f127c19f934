package queue_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/view"
)

// More than MaxAhead stand ahead: so many are counted, no fewer.
func TestPlaceBehindManyEntriesIsMaxAhead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		for i := range view.MaxAhead + 2 {
			srv.Put(fmt.Sprintf("%s%d", holdtest.EntriesX, i), "")
		}
		_, err := hold.Acquire(kit.Within(t, time.Second), holdtest.Start(t, srv).Queue("x"), hold.Request{})
		if place, _ := queue.Without(err); place.Ahead != view.MaxAhead {
			t.Errorf("%+v, %v", place, err)
		}
	})
}

// What it waits for stands, and fewer wait before that.
func TestWaiterIsToldItsPlaceAgainWhileItWaitsForTheSame(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		first, middle := kit.Join(t, srv, holdtest.EntriesX), kit.Join(t, srv, holdtest.EntriesX)
		var told atomic.Int64
		r := hold.Request{Request: queue.Request{OnWait: func(place view.Place) { told.Store(int64(place.Ahead)) }}}
		ended := make(chan struct{})
		go func() { // ends with its context
			defer close(ended)
			_, _ = hold.Acquire(kit.Within(t, 2*queue.RecheckAfter), holdtest.Start(t, srv).Queue("x"), r)
		}()
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		time.Sleep(20 * kit.OneWay)
		if n := told.Load(); n != 2 {
			t.Errorf("told that %d are ahead, want 2", n)
		}
		first.Release()
		<-ended
		if n := told.Load(); n != 1 {
			t.Errorf("told that %d are ahead, want 1", n)
		}
		middle.Release()
	})
}
