package locker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// However many sessions wait, a release and the mark that follows are told to two of them, and no other session asks.
func TestGrantBesideManyWaitingSessionsTakesFewMessages(t *testing.T) {
	const grants, oneWay = 5, time.Millisecond
	waiting := 1000
	if bubble.Race { // of which each one costs some 20 ms
		waiting = 200
	}
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var mu sync.Mutex
		told, asked := 0, make(map[string]int) // messages with events, and requests, but for renewals
		join := func() *locker.Semaphore {
			link := srv.Link()
			link.Delay(oneWay)
			sem := locker.NewSemaphore(open(t, link.Client(), session.Options{TTL: 10 * time.Minute}), "x", 1)
			link.Plan(func(call etcdfake.Call) etcdfake.Fate {
				mu.Lock()
				defer mu.Unlock()
				switch kind := kit.KindOf(call); kind {
				case "event":
					told++
				case "LeaseKeepAlive":
				default:
					asked[kind]++
				}
				return etcdfake.Fate{}
			})
			return sem
		}
		holder, err := join().Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		held, all := make(chan *locker.Permit), sync.WaitGroup{}
		for n := range waiting {
			sem := join()
			all.Go(func() {
				if p, err := sem.Acquire(ctx, 1); err == nil {
					held <- p
				}
			})
			if n < grants || n == waiting-1 { // the first ones in their order
				kit.Queued(t, srv, kit.Permits("x"), n+2)
			}
		}
		for n := range grants {
			mu.Lock()
			told, asked = 0, make(map[string]int)
			mu.Unlock()
			began := time.Now()
			if err := holder.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			holder = <-held
			mu.Lock()
			t.Logf("grant %d after %v: %d messages with events; requests: %v", n, time.Since(began), told, asked)
			sum := 0
			for _, n := range asked {
				sum += n
			}
			if told > 3 || sum > 6 { // a removal, a mark, looks and a watch
				t.Errorf("grant %d: %d messages with events, and %d requests", n, told, sum)
			}
			mu.Unlock()
			time.Sleep(20 * oneWay)
		}
		giveUp()
		all.Wait()
		if err := holder.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
