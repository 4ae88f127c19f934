package telemetry_test

import (
	"bytes"
	"context"
	"maps"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
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

// While nothing collects the counters, and without the profile, a hold and its end cost no allocation.
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

// Nor does anything wake up for it: no goroutine runs, with the counters and the profile on.
func TestNothingWakesUpForWhatWaitsAndIsHeld(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSDK()
		s.options.Profile = true
		tel := telemetry.New(s.options)
		before := runtime.NumGoroutine()
		waits, held := acquireHere(tel), acquireHere(tel)
		held.Held()
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > before { // one of another test may end meanwhile
			t.Errorf("%d goroutines, %d before", n, before)
		}
		waits.Failed("canceled", false)
		held.Released(time.Second)
	})
}

// profiled returns the profile as text.
func profiled(t *testing.T) string {
	t.Helper()
	p := pprof.Lookup("holdfast")
	if p == nil {
		return ""
	}
	var text bytes.Buffer
	if err := p.WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func acquireHere(tel *telemetry.Telemetry) *telemetry.Acquisition {
	_, a := tel.Acquire(context.Background(), holdfast.KindLock, "x")
	return a
}

// The profile has the stack of each wait and of each hold, as long as it lasts, and only if it is asked for.
func TestProfileHasTheStackOfEachWaitAndHold(t *testing.T) {
	off := telemetry.New(telemetry.Options{})
	defer acquireHere(off).Failed("canceled", false)
	if text := profiled(t); strings.Contains(text, "acquireHere") {
		t.Errorf("nobody asked for it:\n%s", text)
	}
	on := telemetry.New(telemetry.Options{Profile: true})
	waits, held := acquireHere(on), acquireHere(on)
	held.Held()
	text := profiled(t)
	for _, part := range []string{"profile: total 2\n", "profileWait", "profileHold", "acquireHere", "TestProfileHas"} {
		if !strings.Contains(text, part) {
			t.Errorf("one waits, one holds, and it lacks %q:\n%s", part, text)
		}
	}
	waits.Failed("canceled", false)
	held.Released(time.Second)
	if text := profiled(t); !strings.HasPrefix(text, "holdfast profile: total 0\n") {
		t.Errorf("all has ended:\n%s", text)
	}
}
