package locker_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// What the gauges count goes up with each call and down to zero with each end, whatever the lock and the end are.
func TestGaugesCountEachWaitAndEachHoldUntilItsEnd(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		reader := sdkmetric.NewManualReader()
		p := kit.Start(t, srv, func(o *session.Options) {
			o.Telemetry.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		})
		expect := func(when string, waiting, held int64) {
			t.Helper()
			var all metricdata.ResourceMetrics
			if err := reader.Collect(context.Background(), &all); err != nil {
				t.Fatal(err)
			}
			counts := make(map[string]int64)
			for _, m := range all.ScopeMetrics[0].Metrics {
				if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
					for _, point := range sum.DataPoints {
						if kind, _ := point.Attributes.Value(attribute.Key("holdfast.kind")); kind.AsString() == "lock" {
							counts[m.Name] += point.Value
						}
					}
				}
			}
			if counts["holdfast.waiting"] != waiting || counts["holdfast.held"] != held {
				t.Errorf("%s: %v, want %d and %d", when, counts, waiting, held)
			}
		}
		ctx := kit.Within(t, 10*time.Minute)
		mu := locker.NewMutex(p.Sess, "x")
		lk, err := mu.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		expect("held", 0, 1)
		giveUp, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = mu.Lock(giveUp) }()
		time.Sleep(time.Second)
		expect("another goroutine waits", 1, 1)
		if _, err := mu.TryLock(ctx); err == nil {
			t.Error("TryLock beside a holder")
		}
		cancel()
		<-ended
		expect("it has given up", 0, 1)
		if err := lk.Unlock(ctx); err != nil {
			t.Error(err)
		}
		expect("released", 0, 0)

		set, err := locker.NewSet(p.Sess, locker.Write("a"), locker.Write("b")).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		expect("a set is one", 0, 1)
		_ = set.Unlock(ctx)
		expect("a set is released", 0, 0)

		both, err := locker.NewRWMutex(p.Sess, "y").LockDowngradable(ctx)
		if err != nil {
			t.Fatal(err)
		}
		read, err := both.Downgrade(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		expect("downgraded", 0, 1)
		_ = read.Unlock(ctx)
		expect("read", 0, 0)

		lost, err := mu.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		srv.Revoke(p.Sess.Lease())
		<-lost.Done()
		time.Sleep(5 * time.Second)
		expect("lost", 0, 0)
	})
}
