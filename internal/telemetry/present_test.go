package telemetry_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// present returns the points of what waits and is held, by "metric attributes", in number.
func present(t *testing.T, s sdk) map[string]int64 {
	t.Helper()
	var collected metricdata.ResourceMetrics
	if err := s.metrics.Collect(context.Background(), &collected); err != nil {
		t.Fatal(err)
	}
	points := make(map[string]int64)
	add := func(name string, attrs attribute.Set, value int64) {
		if name == "holdfast.waiting" || name == "holdfast.held" {
			yours, _ := attrs.Value("yours")
			points[strings.TrimPrefix(name, "holdfast.")+" "+yours.AsString()] = value
		}
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			if data, ok := m.Data.(metricdata.Sum[int64]); ok {
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			}
		}
	}
	return points
}

// Two sessions of one process report together: what waits and what is held.
func TestCountersTellWhatWaitsAndWhatIsHeldInAllSessions(t *testing.T) {
	s, ctx := newSDK(), context.Background()
	first, second := telemetry.New(s.options), telemetry.New(s.options)
	expect := func(when string, want map[string]int64) {
		t.Helper()
		got := present(t, s)
		maps.DeleteFunc(got, func(_ string, n int64) bool { return n == 0 })
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("at first", map[string]int64{})
	_, a := first.Acquire(ctx, holdfast.KindLock, "x")
	_, b := second.Acquire(ctx, holdfast.KindLock, "x")
	_, c := second.Acquire(ctx, holdfast.KindElection, "x")
	expect("three wait", map[string]int64{"waiting lock x": 2, "waiting election x": 1})
	a.Held()
	c.Failed("canceled", false)
	expect("one holds", map[string]int64{"waiting lock x": 1, "held lock x": 1})
	b.Held()
	b.GoesOn() // downgraded
	b.Released(time.Second)
	expect("both hold", map[string]int64{"held lock x": 2})
	a.Lost(time.Second, "expired", 0)
	expect("a reader holds", map[string]int64{"held lock x": 1})
	b.Released(time.Second)
	expect("in the end", map[string]int64{})
}

// uncollected has instruments that say that nothing collects them, as those of OpenTelemetry do from 1.40 on.
type (
	uncollected      struct{ noop.MeterProvider }
	uncollectedMeter struct{ noop.Meter }
	uncollectedSum   struct{ noop.Int64UpDownCounter }
	uncollectedTimes struct{ noop.Float64Histogram }
)

func (uncollected) Meter(string, ...metric.MeterOption) metric.Meter { return uncollectedMeter{} }

func (uncollectedMeter) Int64UpDownCounter(
	string, ...metric.Int64UpDownCounterOption,
) (metric.Int64UpDownCounter, error) {
	return uncollectedSum{}, nil
}

func (uncollectedMeter) Float64Histogram(
	string, ...metric.Float64HistogramOption,
) (metric.Float64Histogram, error) {
	return uncollectedTimes{}, nil
}

func (uncollectedSum) Enabled(context.Context) bool   { return false }
func (uncollectedTimes) Enabled(context.Context) bool { return false }

// While nothing collects the counters, a hold and its end cost no allocation.
func TestPresenceAllocatesNothing(t *testing.T) {
	tel := telemetry.New(telemetry.Options{MeterProvider: uncollected{}})
	_, a := tel.Acquire(context.Background(), holdfast.KindLock, "x")
	if n := testing.AllocsPerRun(1000, func() {
		a.Held()
		a.Released(time.Second)
	}); n != 0 {
		t.Errorf("%v allocations for a hold and its end", n)
	}
}
