package main

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Benchmark runs every subject on every side. Select them by name:
//
//	go test -run '^$' -bench /members=1/handover ./tests/measure/bench
func Benchmark(b *testing.B) {
	etcds := make(stores)
	b.Cleanup(func() {
		if err := etcds.close(); err != nil {
			b.Error(err)
		}
	})
	for _, sub := range subjects() {
		for _, size := range sub.sizes() {
			for _, sd := range sub.sides() {
				b.Run(title(size)+"/"+sub.name+"/by="+sd.name, func(b *testing.B) { run(b, etcds, sub, size, sd) })
			}
		}
	}
}

func run(b *testing.B, etcds stores, sub subject, size int, sd side) {
	writers, err := etcds.startWriters(sub, size)
	if err != nil {
		b.Fatal(err)
	}
	defer writers.close()
	e, call, err := etcds.setUp(sub, size, sd)
	if err != nil {
		b.Fatal(err)
	}
	defer e.close()
	if err := errors.Join(e.prepare(), call(&stopwatch{})); err != nil {
		b.Fatal(err)
	}
	if sub.clientOnly {
		b.ReportAllocs()
	}
	for b.Loop() {
		if err := call(b); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N*sub.perCall()), "ns/op")
}
