package fencing_test

import (
	"context"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
)

// BenchmarkPut compares a bare, a fenced and a marked write, on a server that waits for
// its disk. The three take turns, so that other load on the machine affects all of them,
// and the metrics are medians.
func BenchmarkPut(b *testing.B) {
	cli := etcdtest.Start(b, etcdtest.Options{Fsync: true}).Client(b)
	resp, err := cli.Put(b.Context(), entry, "")
	if err != nil {
		b.Fatal(err)
	}
	h := &holder{cli: cli, entry: entry, token: fencing.Token(resp.Header.Revision)}
	w := fencing.NewFencedWriter(h)
	m, err := fencing.NewEtcdMarks(cli, nil)
	if err != nil {
		b.Fatal(err)
	}
	kinds := []struct {
		name  string
		write func(ctx context.Context) error
		took  []time.Duration
	}{
		{name: "bare", write: func(ctx context.Context) error { _, err := cli.Put(ctx, "k", "v"); return err }},
		{name: "fenced", write: func(ctx context.Context) error { _, err := w.Put(ctx, "k", "v"); return err }},
		{name: "marks", write: func(ctx context.Context) error {
			_, err := m.Commit(ctx, "r", fencing.Claim{Name: "job", Token: h.token}, clientv3.OpPut("k", "v"))
			return err
		}},
	}
	for b.Loop() {
		for i := range kinds {
			start := time.Now()
			if err := kinds[i].write(b.Context()); err != nil {
				b.Fatal(err)
			}
			kinds[i].took = append(kinds[i].took, time.Since(start))
		}
	}
	var bare float64
	for _, k := range kinds {
		slices.Sort(k.took)
		median := float64(k.took[len(k.took)/2].Microseconds())
		if bare == 0 {
			bare = median
		}
		b.ReportMetric(median, k.name+"-µs")
		b.ReportMetric(median/bare, k.name+"/bare")
	}
	b.ReportMetric(0, "ns/op") // hides the meaningless sum of the three
}

func BenchmarkMemoryStore(b *testing.B) {
	s := fencing.NewMemoryStore(nil)
	effect := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Do(b.Context(), "r", fencing.Claim{Name: "job", Token: 7}, effect); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdmit admits a known token: one linearizable read.
func BenchmarkAdmit(b *testing.B) {
	cli := etcdtest.Start(b, etcdtest.Options{Fsync: true}).Client(b)
	m, err := fencing.NewEtcdMarks(cli, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := m.Admit(b.Context(), "r", fencing.Claim{Name: "job", Token: 7}); err != nil {
			b.Fatal(err)
		}
	}
}
