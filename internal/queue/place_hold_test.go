package queue_test

import (
	"fmt"
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
