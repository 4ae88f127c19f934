package queuetest

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/session"
)

// Metrics are the metrics of a session.
type Metrics struct{ reader *sdkmetric.ManualReader }

// CollectMetrics has a session that is yet to be started collect its metrics.
func CollectMetrics(o *session.Options) Metrics {
	m := Metrics{sdkmetric.NewManualReader()}
	o.Telemetry.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))
	return m
}

// Points returns all data points but the session's own by "name attributes", without
// "holdfast.": the value, or of a histogram the count.
func (m Metrics) Points(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	points := make(map[string]int64)
	add := func(name string, attrs attribute.Set, value int64) {
		point := name + " " + attrs.Encoded(attribute.DefaultEncoder())
		points[strings.ReplaceAll(point, "holdfast.", "")] = value
	}
	for _, metric := range all.ScopeMetrics[0].Metrics {
		switch data := metric.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(metric.Name, p.Attributes, int64(p.Count))
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(metric.Name, p.Attributes, p.Value)
			}
		}
	}
	return points
}
