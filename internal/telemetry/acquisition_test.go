package telemetry_test

import (
	"context"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// BenchmarkTelemetry measures the reports of one uncontended acquisition and release.
func BenchmarkTelemetry(b *testing.B) {
	once := func(t *telemetry.Telemetry) {
		ctx, a := t.Acquire(context.Background(), holdfast.KindLock, "x")
		telemetry.Queued(ctx, 0)
		a.Held()
		_, end := a.Release(ctx)
		end(nil)
		a.Released(time.Second)
	}
	run := func(b *testing.B, t *telemetry.Telemetry) {
		t.State(holdfast.Closed, holdfast.Connected)
		defer t.State(holdfast.Connected, holdfast.Closed)
		b.ReportAllocs()
		for b.Loop() {
			once(t)
		}
	}
	b.Run("no SDK", func(b *testing.B) { run(b, telemetry.New(telemetry.Options{})) })
	b.Run("SDK", func(b *testing.B) {
		run(b, telemetry.New(telemetry.Options{
			TracerProvider: sdktrace.NewTracerProvider(),
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		}))
	})
}
