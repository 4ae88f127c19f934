package lastrun_test

import (
	"maps"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func metered(t *testing.T, srv *etcdfake.Server) (*session.Session, *sdkmetric.ManualReader) {
	reader := sdkmetric.NewManualReader()
	return kit.Start(t, srv, func(o *session.Options) {
		o.Telemetry.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	}).Sess, reader
}

// gauges returns the values of all gauges in seconds.
func gauges(t *testing.T, reader *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			if gauge, ok := metric.Data.(metricdata.Gauge[float64]); ok {
				for _, p := range gauge.DataPoints {
					found[metric.Name] = p.Value
				}
			}
		}
	}
	return found
}

func TestProcessesThatRecordOrReadARunReportIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ran, records := metered(t, srv)
		looks, reads := metered(t, srv)
		mustRecord(t, held(t, locker.NewMutex(ran, "nightly")), "1", time.Hour)
		if got := gauges(t, reads); len(got) > 0 {
			t.Errorf("before it reads: %v", got)
		}
		r := lastRun(t, looks)
		seconds := func(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
		want := map[string]float64{"holdfast.run.time": seconds(r.At), "holdfast.run.due": seconds(r.Due)}
		if got := gauges(t, records); !maps.Equal(got, want) {
			t.Errorf("the process that has recorded it: %v, want %v", got, want)
		}
		if got := gauges(t, reads); !maps.Equal(got, want) {
			t.Errorf("the process that has read it: %v, want %v", got, want)
		}
	})
}
