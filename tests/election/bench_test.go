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

// eachCluster runs a benchmark on one member and on three. Without fsync the floor is
// lowest, so that the overhead of the library shows most.
func eachCluster(b *testing.B, f func(b *testing.B, client func(testing.TB) *clientv3.Client)) {
	b.Run("members=1", func(b *testing.B) { f(b, etcdtest.Start(b).Client) })
	b.Run("members=3", func(b *testing.B) { f(b, etcdtest.StartCluster(b, 3).Client) })
	b.Run("members=3,fsync", func(b *testing.B) {
		f(b, etcdtest.StartCluster(b, 3, etcdtest.Options{Fsync: true}).Client)
	})
}

// BenchmarkFailoverAfterResign measures the time from the call of Resign to the return
// of another process's Campaign, also as a multiple of the floor: one Delete and one
// read.
func BenchmarkFailoverAfterResign(b *testing.B) {
	eachCluster(b, func(b *testing.B, client func(testing.TB) *clientv3.Client) {
		ctx := context.Background()
		els := [2]*election.Election{}
		for i := range els {
			els[i] = newElection(b, client(b), session.Options{TTL: 60 * time.Second})
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

// BenchmarkFailoverAfterCrash measures the time from a leader's last packet to the
// return of another process's Campaign, for the shortest TTL: the rest of the TTL (two
// thirds to all of it), etcd's delay in expiring it, and the lock delay.
func BenchmarkFailoverAfterCrash(b *testing.B) {
	srv := etcdtest.Start(b)
	next := newElection(b, srv.Client(b), session.Options{TTL: 60 * time.Second})
	var all []time.Duration
	for b.Loop() {
		b.StopTimer()
		link := srv.Link(b)
		crashes := newElection(b, link.Client(), session.Options{TTL: time.Second, CloseTimeout: time.Millisecond})
		campaign(b, crashes, "crashes")
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
