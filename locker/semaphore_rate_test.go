package locker_test

import (
	"context"
	"flag"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

var (
	crowdSize = flag.Int("crowd", 0, "callers in the test of crowds; 0: 960, or 240 under the race detector")
	rounds    = flag.Int("rounds", 4, "how often each permit is held at most in the test of permits in use")
)

// crowd is some sessions that use one semaphore.
type crowd struct {
	limit, sessions, callers int
	hold, oneWay             time.Duration

	// of all sessions
	txns, watches, events atomic.Int64
	grants, held          atomic.Int64
	used                  atomic.Int64 // nanoseconds of permits, within the time of the test
}

// runs has each caller acquire and release again and again until the test's time is over, or rounds times.
func (c *crowd) runs(t *testing.T, srv *etcdfake.Server, within time.Duration, rounds int) {
	srv.Put(kit.LimitX, strconv.Itoa(c.limit))
	var sems []*locker.Semaphore
	for range c.sessions {
		link := srv.Link()
		link.Delay(c.oneWay)
		sem := locker.NewSemaphore(open(t, link.Client(), session.Options{}), "x", c.limit)
		link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			switch call.Request.(type) {
			case *pb.TxnRequest:
				c.txns.Add(1)
			case clientv3.Op, *pb.WatchCreateRequest:
				c.watches.Add(1)
			case nil:
				c.events.Add(1)
			}
			return etcdfake.Fate{}
		})
		sems = append(sems, sem)
	}
	over := time.Now().Add(within)
	ctx, cancel := context.WithDeadline(t.Context(), over)
	defer cancel()
	var wg sync.WaitGroup
	for _, sem := range sems {
		for range c.callers {
			wg.Go(func() {
				for n := 0; rounds == 0 || n < rounds; n++ {
					p, err := sem.Acquire(ctx, 1)
					if err != nil {
						if ctx.Err() == nil || rounds != 0 {
							t.Error(err)
						}
						return
					}
					if now := c.held.Add(1); now > int64(c.limit) {
						t.Errorf("%d hold, and the limit is %d", now, c.limit)
					}
					c.used.Add(int64(min(c.hold, time.Until(over))))
					time.Sleep(c.hold)
					c.held.Add(-1)
					c.grants.Add(1)
					if err := p.Release(context.WithoutCancel(ctx)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
}

// of returns a count for each grant.
func (c *crowd) of(count *atomic.Int64) float64 {
	return float64(count.Load()) / float64(c.grants.Load())
}

func TestPermitsAreInUse(t *testing.T) {
	for _, c := range []struct {
		limit      int
		hold, trip time.Duration
		atLeast    float64 // permits in use
	}{
		{100, time.Second, 10 * time.Millisecond, 95},
		{100, time.Second, 40 * time.Millisecond, 84},
		{25, 50 * time.Millisecond, 10 * time.Millisecond, 13},
		{25, 50 * time.Millisecond, 40 * time.Millisecond, 5},
	} {
		within := max(2*time.Second, time.Duration(*rounds)*c.hold)
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			crowd := &crowd{limit: c.limit, sessions: 10, callers: 2 * c.limit / 10, hold: c.hold, oneWay: c.trip / 2}
			crowd.runs(t, srv, within, 0)
			inUse := float64(crowd.used.Load()) / float64(within)
			t.Logf("%d permits held for %v, round trip %v: %.1f in use; for each grant %.2f Txns, %.2f watches, %.2f messages",
				c.limit, c.hold, c.trip, inUse, crowd.of(&crowd.txns), crowd.of(&crowd.watches), crowd.of(&crowd.events))
			if inUse < c.atLeast {
				t.Errorf("%.1f are in use, want %.0f", inUse, c.atLeast)
			}
		})
	}
}

func TestCrowdOfASemaphore(t *testing.T) {
	callers := *crowdSize
	switch {
	case callers != 0:
	case bubble.Race:
		callers = 240
	default:
		callers = 960
	}
	for _, c := range []struct {
		limit, sessions, callers int
		txns, watches            float64 // at most, for each caller
	}{
		{25, callers / 60, 60, 4.5, 1.5}, {25, 1, callers, 4.5, 1.5}, {1000, 1, callers, 4.5, 1.5},
		// The mark of the turn ahead makes a caller the front, and leaves no room. So each one looks twice more, and has a
		// second watch. The third is its session's own.
		{1, callers * 5 / 16, 1, 8, 3},
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			crowd := &crowd{limit: c.limit, sessions: c.sessions, callers: c.callers, hold: 5 * time.Millisecond,
				oneWay: time.Millisecond}
			began := time.Now()
			crowd.runs(t, srv, time.Hour, 1)
			t.Logf("%d permits, %d × %d callers: %v; for each %.2f Txns, %.2f watches, %.2f messages", c.limit, c.sessions,
				c.callers, time.Since(began), crowd.of(&crowd.txns), crowd.of(&crowd.watches), crowd.of(&crowd.events))
			if crowd.of(&crowd.txns) > c.txns || crowd.of(&crowd.watches) > c.watches {
				t.Errorf("more than %v Txns and %v watches each", c.txns, c.watches)
			}
		})
	}
}
