package shard_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// In a large fleet, too, a member that joins costs requests for the shards that move, in batches, and each other member
// a few for those that it hands over. No request goes to all.
func TestJoinOfALargeFleetIsNoHerd(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		n, m := 120, 8
		if *full {
			n, m = 10_000, 100
		}
		f := newFleet(t, srv, n)
		all := startAll(f, m, 0)
		time.Sleep(time.Minute)
		if f.owned() != n {
			t.Fatalf("%d of %d shards are owned", f.owned(), n)
		}
		before := f.calls()
		for _, r := range all {
			r.delayed()
		}
		p := kit.Start(t, srv)
		joined := &running{Process: p}
		joined.delayed()
		f.longest = 0
		f.startWith(p, "joins", f.work("joins", 0))
		time.Sleep(settled)
		moved := f.calls() - before
		own := joined.Counts()
		others, most := make(map[string]int), 0
		for _, r := range all {
			sum := 0
			for kind, n := range r.shared() {
				others[kind] += n
				sum += n
			}
			most = max(most, sum)
		}
		t.Logf("%d shards, %d members and one more: %d moved, at most %v without an owner; it sent %v; the others %v, "+
			"each at most %d", n, m, moved, f.longest, own, others, most)
		fair := (n + m) / (m + 1)
		if moved < fair || moved > 2*fair {
			t.Errorf("%d shards moved; the new member has %d", moved, fair)
		}
		// Of the shards that move it queues for, in batches of up to 16; the rest move among the others.
		if own["enqueue"] > 12+moved/4 {
			t.Errorf("it sent %d requests that queue, for %d moves", own["enqueue"], moved)
		}
		sum := 0
		for _, n := range others {
			sum += n
		}
		if sum > 4*moved+m || most > moved {
			t.Errorf("%d moves: the others sent %v, one of them %d", moved, others, most)
		}
	})
}

// As docs/shards.md says. The heap is that of all members and of the etcd in memory; how large it is depends on the
// build.
func TestMemoryOfAShardThatIsOwned(t *testing.T) {
	fewest, sizes := 50, []int{250}
	if *full {
		fewest, sizes = 1000, []int{4000, 10_000}
	}
	heap := func(n int) (bytes, goroutines int) {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			f := newFleet(t, srv, n)
			f.start("a", 0)
			time.Sleep(time.Minute)
			if f.owned() != n {
				t.Errorf("%d of %d shards are owned", f.owned(), n)
			}
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			bytes, goroutines = int(stats.HeapAlloc+stats.StackInuse), runtime.NumGoroutine()
		})
		return bytes, goroutines
	}
	fewBytes, few := heap(fewest)
	for _, n := range sizes {
		bytes, all := heap(n)
		more := n - fewest
		t.Logf("%d shards: %d bytes and %.1f goroutines for each beyond the first %d", n, (bytes-fewBytes)/more,
			float64(all-few)/float64(more), fewest)
		if all-few > 2*more+10 { // the runtime's own come and go
			t.Errorf("%d goroutines for %d shards more", all-few, more)
		}
	}
}
