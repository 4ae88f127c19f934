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
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// present returns the points of what waits and is held, by "metric attributes", in seconds or in number.
func present(t *testing.T, s sdk) map[string]float64 {
	t.Helper()
	var collected metricdata.ResourceMetrics
	if err := s.metrics.Collect(context.Background(), &collected); err != nil {
		t.Fatal(err)
	}
	points := make(map[string]float64)
	add := func(metric string, attrs attribute.Set, value float64) {
		if strings.HasPrefix(metric, "holdfast.waiting") || strings.HasPrefix(metric, "holdfast.held") {
			yours, _ := attrs.Value("yours")
			points[strings.TrimPrefix(metric, "holdfast.")+" "+yours.AsString()] = value
		}
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			}
		}
	}
	return points
}

// Two sessions of one process report together: what waits and what is held, and the longest of each.
func TestGaugesTellWhatWaitsAndWhatIsHeldInAllSessions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, ctx := newSDK(), context.Background()
		first, second := telemetry.New(s.options), telemetry.New(s.options)
		first.State("", "connected")
		second.State("", "connected")
		expect := func(when string, want map[string]float64) {
			t.Helper()
			if got := present(t, s); !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		expect("at first", map[string]float64{})
		_, a := first.Acquire(ctx, holdfast.KindLock, "x")
		time.Sleep(time.Second)
		_, b := second.Acquire(ctx, holdfast.KindLock, "x")
		_, c := second.Acquire(ctx, holdfast.KindElection, "x")
		time.Sleep(2 * time.Second)
		expect("three wait", map[string]float64{
			"waiting lock x": 2, "waiting.longest lock x": 3, "waiting election x": 1, "waiting.longest election x": 2,
		})
		a.Held()
		c.Failed("canceled", false)
		time.Sleep(5 * time.Second)
		expect("one holds", map[string]float64{
			"waiting lock x": 1, "waiting.longest lock x": 7, "held lock x": 1, "held.longest lock x": 5,
		})
		b.Held()
		b.GoesOn() // downgraded
		b.Released(time.Second)
		first.State("connected", "")
		expect("one session is closed", map[string]float64{"held lock x": 2, "held.longest lock x": 5})
		a.Lost(time.Second, "expired", 0)
		time.Sleep(time.Second)
		expect("a reader holds", map[string]float64{"held lock x": 1, "held.longest lock x": 1})
		b.Released(time.Second)
		expect("in the end", map[string]float64{})
		_, d := second.Acquire(ctx, holdfast.KindLock, "x")
		second.State("connected", "")
		expect("no session is open", map[string]float64{})
		d.Failed("closed", true)
	})
}

// Without an SDK that collects them, and without the profile, what waits and is held costs a lock no allocation.
func TestPresenceAllocatesNothing(t *testing.T) {
	count := func(tel *telemetry.Telemetry) float64 {
		return testing.AllocsPerRun(1000, func() {
			_, a := tel.Acquire(context.Background(), holdfast.KindLock, "x")
			a.Held()
			a.Released(time.Second)
		})
	}
	opened, closed := telemetry.New(telemetry.Options{}), telemetry.New(telemetry.Options{})
	opened.State("", "connected")
	defer opened.State("connected", "")
	if with, without := count(opened), count(closed); with != without {
		t.Errorf("%v allocations, %v without", with, without)
	}
}

// Nor does anything wake up for it: no goroutine runs, with the gauges and the profile on.
func TestNothingWakesUpForWhatWaitsAndIsHeld(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newSDK()
		s.options.Profile = true
		tel := telemetry.New(s.options)
		tel.State("", "connected")
		defer tel.State("connected", "")
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
	off.State("", "connected")
	defer off.State("connected", "")
	defer acquireHere(off).Failed("canceled", false)
	if text := profiled(t); strings.Contains(text, "acquireHere") {
		t.Errorf("nobody asked for it:\n%s", text)
	}
	on := telemetry.New(telemetry.Options{Profile: true})
	on.State("", "connected")
	defer on.State("connected", "")
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
