package etcd_test

import (
	"fmt"
	"runtime"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdtest"
)

// BenchmarkList lists all names of a real etcd, and reports the time of each and the live memory on the way, which is
// that of the etcd in this process as well. etcd counts the names that are left for each page, so each of a million
// takes longer than each of a thousand: on two busy cores 100,000 names took 1.5 s, and 1,000,000 took 106 s with 34
// MiB of live memory more than before. The last size takes minutes.
//
//	go test -run '^$' -bench 'List/names=1000$' ./tests/etcd
func BenchmarkList(b *testing.B) {
	for _, names := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("names=%d", names), func(b *testing.B) {
			cli := etcdtest.Start(b).Client(b)
			hold(b, cli, names)
			adm := admin.New(cli, admin.Options{})
			before, live := liveBytes(), int64(0)
			for b.Loop() {
				got := 0
				for _, err := range adm.List(b.Context(), holdfast.KindLock, "") {
					if err != nil {
						b.Fatal(err)
					}
					if got++; got%(names/4) == names/8 {
						b.StopTimer()
						live = max(live, liveBytes()-before)
						b.StartTimer()
					}
				}
				if got != names {
					b.Fatalf("%d names", got)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*names), "ns/name")
			b.ReportMetric(float64(live)/1024, "live-KiB")
		})
	}
}

// liveBytes is the memory in use, of the etcd as well.
func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// hold puts entries as that many held locks have them.
func hold(t testing.TB, cli *clientv3.Client, names int) {
	t.Helper()
	lease, err := cli.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	value := `{"v":2,"owner":"worker-a","host":"machine-17.example.org","pid":4711,"mode":"exclusive",` +
		`"queued_at":"2026-01-31T12:00:00Z","held_since":"2026-01-31T12:00:01Z"}`
	const each = 100
	for first := 0; first < names; first += each {
		var puts []clientv3.Op
		for i := first; i < min(first+each, names); i++ {
			key := fmt.Sprintf("holdfast/lock/job/%07d/@/%x-AAAAAAAAAAAAAAAA", i, int64(lease.ID))
			puts = append(puts, clientv3.OpPut(key, value, clientv3.WithLease(lease.ID)))
		}
		if _, err := cli.Txn(t.Context()).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
}
