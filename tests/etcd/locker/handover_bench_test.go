package locker_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// BenchmarkHandOverAtHighLatency measures the time from a release until the waiter holds the lock, and the RPCs per
// waiter. One session waits for 1,000 locks, with a round-trip time of 20 ms:
//
//	go test -run '^$' -bench HighLatency -benchtime 1x ./tests/etcd/locker
//
// released is the time between queueing and the release.
func BenchmarkHandOverAtHighLatency(b *testing.B) {
	const waiters, roundTrip = 1000, 20 * time.Millisecond
	for _, released := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second} {
		b.Run(fmt.Sprint("released=", released), func(b *testing.B) {
			srv := etcdtest.Start(b)
			link := srv.Link(b)
			cli := link.Client()
			link.Delay(roundTrip / 2)
			ctx := context.Background()
			sess, err := session.New(ctx, cli, session.Options{TTL: 600 * time.Second, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = sess.Close(ctx) }()
			admin := srv.Client(b)
			var took []time.Duration
			before := link.Count()
			for round := range b.N {
				took = append(took, handOver(b, ctx, admin, sess, round, waiters, released)...)
			}
			sent := link.Count().Since(before)
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
			b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "max-ms")
			n := float64(b.N * waiters)
			b.ReportMetric(float64(sent["Range"])/n, "reads/waiter")
			b.ReportMetric(float64(sent["Txn"])/n, "txns/waiter")
		})
	}
}

// handOver queues the session behind an entry of another client for each of n names, removes those entries, and returns
// the time from removal to acquisition for every fifth name.
func handOver(b *testing.B, ctx context.Context, admin *clientv3.Client, sess *session.Session, round, n int,
	released time.Duration) []time.Duration {
	b.Helper()
	name := func(i int) string { return fmt.Sprintf("%d/%d", round, i) }
	var ops []clientv3.Op
	for i := range n {
		ops = append(ops, clientv3.OpPut("holdfast/lock/"+name(i)+"/@/another", ""))
	}
	for batch := range slices.Chunk(ops, 100) {
		if _, err := admin.Txn(ctx).Then(batch...).Commit(); err != nil {
			b.Fatal(err)
		}
	}
	type held struct {
		lk  *locker.Lock
		err error
		at  time.Time
	}
	all := make(chan held, n)
	for i := range n {
		go func() { // received below
			lk, err := locker.NewMutex(sess, name(i)).Lock(ctx)
			all <- held{lk, err, time.Now()}
		}()
	}
	timeout := time.After(time.Minute)
	for { // until all waiters are queued
		resp, err := admin.Get(ctx, "holdfast/lock/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			b.Fatal(err)
		}
		if resp.Count == int64(2*n) {
			break
		}
		select {
		case <-timeout:
			b.Fatal("not all waiters are queued after a minute")
		default:
		}
	}
	<-time.After(released)
	// The measured entries are removed one at a time, so that the load on this machine does not count.
	removed := make(map[string]time.Time)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for i := range n {
		if i%5 == 0 {
			<-tick.C
			if _, err := admin.Delete(ctx, "holdfast/lock/"+name(i)+"/@/another"); err != nil {
				b.Fatal(err)
			}
			removed[name(i)] = time.Now()
		}
	}
	took := make([]time.Duration, 0, n/5)
	var locks []*locker.Lock
	for i := range n {
		if i == n/5 { // all measured waiters hold their locks; release the others
			for i := range n {
				if i%5 != 0 {
					if _, err := admin.Delete(ctx, "holdfast/lock/"+name(i)+"/@/another"); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		h := <-all
		if h.err != nil {
			b.Fatal(h.err)
		}
		if at, ok := removed[h.lk.Name()]; ok {
			took = append(took, h.at.Sub(at))
		}
		locks = append(locks, h.lk)
	}
	var unlocks sync.WaitGroup
	for _, lk := range locks {
		unlocks.Go(func() { _ = lk.Unlock(ctx) })
	}
	unlocks.Wait()
	return took
}
