package fencing_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

// BenchmarkPut measures what a fence costs, on a member that waits for its disk:
// one RPC each.
func BenchmarkPut(b *testing.B) {
	cli := etcdtest.Start(b, etcdtest.Options{Fsync: true}).Client(b)
	resp, err := cli.Put(b.Context(), entry, "")
	if err != nil {
		b.Fatal(err)
	}
	h := &holder{cli: cli, entry: entry, token: holdfast.Token(resp.Header.Revision)}
	w := etcdfence.NewWriter(h)
	m, err := etcdfence.NewMarks(cli, etcdfence.MarksOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []struct {
		name  string
		write func(ctx context.Context) error
	}{
		{"bare", func(ctx context.Context) error { _, err := cli.Put(ctx, "k", "v"); return err }},
		{"fenced", func(ctx context.Context) error { _, err := w.Put(ctx, "k", "v"); return err }},
		{"marks", func(ctx context.Context) error {
			_, err := m.Commit(ctx, "r", fencing.Claim{Name: "job", Token: h.token}, clientv3.OpPut("k", "v"))
			return err
		}},
	} {
		b.Run("by="+kind.name, func(b *testing.B) {
			for b.Loop() {
				if err := kind.write(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStoreInMemory(b *testing.B) {
	s := memfence.New(memfence.Options{})
	effect := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Do(b.Context(), "r", fencing.Claim{Name: "job", Token: 7}, effect); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdmit is a filter's answer to a token that it has seen: one
// linearizable read.
func BenchmarkAdmit(b *testing.B) {
	cli := etcdtest.Start(b, etcdtest.Options{Fsync: true}).Client(b)
	m, err := etcdfence.NewMarks(cli, etcdfence.MarksOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := m.Admit(b.Context(), "r", fencing.Claim{Name: "job", Token: 7}); err != nil {
			b.Fatal(err)
		}
	}
}
