package election_test

import (
	"context"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// bothStores runs a benchmark on one member and on three. Without fsync the
// floor is at its lowest, and what the library adds shows most.
func bothStores(b *testing.B, f func(b *testing.B, client func(testing.TB) *clientv3.Client)) {
	b.Run("members=1", func(b *testing.B) { f(b, etcdtest.Start(b).Client) })
	b.Run("members=3", func(b *testing.B) { f(b, etcdtest.StartCluster(b, 3).Client) })
	b.Run("members=3,fsync", func(b *testing.B) { f(b, etcdtest.StartCluster(b, 3, etcdtest.Options{Fsync: true}).Client) })
}

// From the call of Resign to the return of another process's Campaign, and how
// many times the floor that is: one Delete's commit and one read.
func BenchmarkFailoverAfterResign(b *testing.B) {
	bothStores(b, func(b *testing.B, client func(testing.TB) *clientv3.Client) {
		ctx := context.Background()
		els := [2]*election.Election{}
		for i := range els {
			els[i] = election.New(open(b, client(b), session.Options{TTL: 60 * time.Second}), "x")
		}
		watch := client(b)
		leader := campaign(b, els[0], "v")
		var failovers, floors []time.Duration
		cli := client(b)
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			next := campaignLater(ctx, els[(i+1)%2], "v")
			waitForEntries(b, watch, 2)
			if _, err := cli.Put(ctx, "floor", ""); err != nil {
				b.Fatal(err)
			}
			start := time.Now()
			if _, err := cli.Delete(ctx, "floor"); err != nil {
				b.Fatal(err)
			}
			if _, err := cli.Get(ctx, "floor"); err != nil {
				b.Fatal(err)
			}
			floors = append(floors, time.Since(start))
			b.StartTimer()

			start = time.Now()
			resigned := later(func() error { return leader.Resign(ctx) })
			r := <-next
			failovers = append(failovers, time.Since(start))
			if r.err != nil {
				b.Fatal(r.err)
			}
			leader = r.term
			b.StopTimer()
			if err := <-resigned; err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		failover, floor := median(failovers), median(floors)
		b.ReportMetric(float64(floor.Nanoseconds()), "floor-ns/op")
		b.ReportMetric(float64(failover)/float64(floor), "x-floor")
	})
}

// From the moment at which a leader falls silent to the return of another
// process's Campaign, for the shortest TTL. It takes the rest of the TTL (two
// thirds to all of it, by when the last renewal was) and what etcd takes to
// notice.
func BenchmarkFailoverAfterCrash(b *testing.B) {
	srv := etcdtest.Start(b)
	next := election.New(open(b, srv.Client(b), session.Options{TTL: 60 * time.Second}), "x")
	var all []time.Duration
	for b.Loop() {
		b.StopTimer()
		link := srv.Link(b)
		campaign(b, election.New(open(b, link.Client(), session.Options{TTL: time.Second, CloseTimeout: time.Millisecond}), "x"), "crashes")
		c := campaignLater(context.Background(), next, "v")
		srv.WaitForKeys(b, prefix, 2)
		b.StartTimer()
		start := time.Now()
		link.BlackHole()
		term := won(b, c)
		all = append(all, time.Since(start))
		b.StopTimer()
		resign(b, term)
		b.StartTimer()
	}
	b.ReportMetric(float64(slices.Min(all).Milliseconds()), "min-ms")
	b.ReportMetric(float64(slices.Max(all).Milliseconds()), "max-ms")
}

// A question to an Observer.
func BenchmarkObserverCurrent(b *testing.B) {
	o := newObserver(b, election.New(open(b, etcdtest.Start(b).Client(b), session.Options{}), "x"))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = o.Current()
		}
	})
}

func waitForEntries(b *testing.B, cli *clientv3.Client, n int64) {
	b.Helper()
	eventually(b, "all are queued", func() bool {
		resp, err := cli.Get(context.Background(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && resp.Count == n
	})
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}
