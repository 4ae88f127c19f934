package election_test

import (
	"context"
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
// of another process's Campaign; BenchmarkFloorOfFailover the least that etcd needs for it.
func BenchmarkFailoverAfterResign(b *testing.B) {
	eachCluster(b, func(b *testing.B, client func(testing.TB) *clientv3.Client) {
		ctx := context.Background()
		els := [2]*election.Election{}
		for i := range els {
			els[i] = newElection(b, client(b), session.Options{TTL: 60 * time.Second})
		}
		watch := client(b)
		leader := campaign(b, els[0], "v")
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			next := campaignLater(ctx, els[(i+1)%2], "v")
			waitForEntries(b, watch, 2)
			b.StartTimer()
			resigned := later(func() error { return leader.Resign(ctx) })
			r := <-next
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
	})
}

// BenchmarkFloorOfFailover measures a Delete and a read.
func BenchmarkFloorOfFailover(b *testing.B) {
	eachCluster(b, func(b *testing.B, client func(testing.TB) *clientv3.Client) {
		cli := client(b)
		for b.Loop() {
			b.StopTimer()
			_, err := cli.Put(b.Context(), "floor", "")
			b.StartTimer()
			if err == nil {
				_, err = cli.Delete(b.Context(), "floor")
			}
			if err == nil {
				_, err = cli.Get(b.Context(), "floor")
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFailoverAfterCrash measures the time from a leader's last packet to the return of another process's
// Campaign, for the shortest TTL. It consists of the rest of the TTL (two thirds to all of it), etcd's delay in
// expiring it, and the lock delay.
func BenchmarkFailoverAfterCrash(b *testing.B) {
	srv := etcdtest.Start(b)
	next := newElection(b, srv.Client(b), session.Options{TTL: 60 * time.Second})
	for b.Loop() {
		b.StopTimer()
		link := srv.Link(b)
		crashes := newElection(b, link.Client(), session.Options{TTL: time.Second, CloseTimeout: time.Millisecond})
		campaign(b, crashes, "crashes")
		c := campaignLater(context.Background(), next, "v")
		srv.WaitForKeys(b, prefix, 2)
		b.StartTimer()
		link.BlackHole()
		term := won(b, c)
		b.StopTimer()
		resign(b, term)
		b.StartTimer()
	}
}

func waitForEntries(b *testing.B, cli *clientv3.Client, n int64) {
	b.Helper()
	eventually(b, "all are queued", func() bool {
		resp, err := cli.Get(context.Background(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && resp.Count == n
	})
}
