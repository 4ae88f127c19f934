package telemetry_test

import (
	"context"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

func TestMain(m *testing.M) { leak.Main(m) }

// BenchmarkTelemetry measures the reports of one uncontended acquisition and release.
func BenchmarkTelemetry(b *testing.B) {
	once := func(t *telemetry.Telemetry) {
		ctx, a := t.Acquire(context.Background(), "lock", "x")
		telemetry.Queued(ctx, 0)
		telemetry.Verified(ctx)
		a.Held()
		a.Release(ctx)("released")
		a.Released(time.Second)
	}
	b.Run("no SDK", func(b *testing.B) {
		b.ReportAllocs()
		for t := telemetry.New(telemetry.Options{}); b.Loop(); {
			once(t)
		}
	})
	b.Run("SDK", func(b *testing.B) {
		b.ReportAllocs()
		t := telemetry.New(telemetry.Options{
			TracerProvider: sdktrace.NewTracerProvider(),
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		})
		for b.Loop() {
			once(t)
		}
	})
}
