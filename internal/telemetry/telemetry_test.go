package telemetry_test

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// sdk is OpenTelemetry's SDK, which collects in memory.
type sdk struct {
	spans   *tracetest.InMemoryExporter
	metrics *sdkmetric.ManualReader
	options telemetry.Options
}

func newSDK() sdk {
	s := sdk{spans: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader()}
	s.options = telemetry.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.metrics)),
		Attributes: func(kind holdfast.Kind, name string) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("yours", string(kind)+" "+name)}
		},
	}
	return s
}

// reportAll makes every report once. At its end one call waits, and one lock is held.
func reportAll(t *telemetry.Telemetry) {
	t.State(holdfast.Closed, holdfast.Connected)
	ctx, a := t.Acquire(context.Background(), holdfast.KindLock, "x")
	telemetry.Queued(ctx, 1)
	telemetry.Woken(ctx)
	a.Held()
	_, end := a.Release(ctx)
	end(nil)
	a.Released(time.Second)
	_, a = t.Acquire(context.Background(), holdfast.KindLock, "x")
	a.Failed("failed", true)
	_, a = t.Acquire(context.Background(), holdfast.KindLock, "x")
	a.Held()
	a.Lost(time.Second, "expired", time.Second)
	t.State(holdfast.Connected, holdfast.Lost)
	t.Renewed(time.Now(), time.Second)
	t.RenewalFailed(time.Now(), "failed", "unknown")
	t.SessionLost("expired", time.Second)
	t.Ambiguous(holdfast.KindLock, "enqueue")
	t.Sweeping(holdfast.KindLock)
	t.PollFailed()
	t.Ran(holdfast.KindLock, "x", time.Now(), time.Now())
	t.Shards("x").Begin(8)
	t.Shards("x").State("", "waiting")
	t.Shards("x").State("waiting", "owned")
	t.Shards("x").Failed("error")
	t.Acquire(context.Background(), holdfast.KindLock, "x")
	_, a = t.Acquire(context.Background(), holdfast.KindLock, "x")
	a.Held()
}

// row describes a metric or span, as a row of a table in docs/telemetry.md does.
type row struct{ instrument, unit, attributes, events string }

var (
	quoted = regexp.MustCompile("`(holdfast\\.[a-z.]+)`")
	plain  = regexp.MustCompile("`([a-z]+)`")
)

// names returns the quoted attribute keys of a cell, and "yours", sorted.
func names(cell string) string {
	var all []string
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	if strings.Contains(cell, "yours") {
		all = append(all, "yours")
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// tables returns the metrics and spans that the document lists.
func tables(t *testing.T) (metrics, spans map[string]row) {
	t.Helper()
	text, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics, spans = make(map[string]row), make(map[string]row)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		name := quoted.FindStringSubmatch(cells[0])
		switch {
		case name == nil || !strings.HasPrefix(line, "| `"):
		case len(cells) == 5:
			instrument, unit := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
			metrics[name[1]] = row{instrument: instrument, unit: unit, attributes: names(cells[3])}
		case len(cells) == 3:
			var events []string
			for _, event := range plain.FindAllStringSubmatch(cells[2], -1) {
				events = append(events, event[1])
			}
			spans[name[1]] = row{attributes: names(cells[1] + cells[2]), events: strings.Join(events, " ")}
		}
	}
	return metrics, spans
}

// keys returns attribute keys in the form of names.
func keys(sets ...[]attribute.KeyValue) string {
	var all []string
	for _, set := range sets {
		for _, kv := range set {
			all = append(all, string(kv.Key))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

func TestReportsMatchTheDocument(t *testing.T) {
	s := newSDK()
	reportAll(telemetry.New(s.options))
	wantMetrics, wantSpans := tables(t)

	var collected metricdata.ResourceMetrics
	if err := s.metrics.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]row)
	for _, m := range collected.ScopeMetrics[0].Metrics {
		r := row{unit: m.Unit}
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			r.instrument = "histogram"
			r.attributes = pointKeys(data.DataPoints,
				func(p metricdata.HistogramDataPoint[float64]) attribute.Set { return p.Attributes })
		case metricdata.Gauge[float64]:
			r.instrument = "gauge"
			r.attributes = pointKeys(data.DataPoints,
				func(p metricdata.DataPoint[float64]) attribute.Set { return p.Attributes })
		case metricdata.Sum[int64]:
			r.instrument = "up-down counter"
			if data.IsMonotonic {
				r.instrument = "counter"
			}
			r.attributes = pointKeys(data.DataPoints, func(p metricdata.DataPoint[int64]) attribute.Set { return p.Attributes })
		}
		if m.Description == "" {
			t.Errorf("%s has no description", m.Name)
		}
		got[m.Name] = r
	}
	if !maps.Equal(got, wantMetrics) {
		t.Errorf("metrics\nreported %v\ndocument %v", got, wantMetrics)
	}

	attrs, events := make(map[string][]attribute.KeyValue), make(map[string][]string)
	for _, span := range s.spans.GetSpans() {
		attrs[span.Name] = append(attrs[span.Name], span.Attributes...)
		for _, event := range span.Events {
			attrs[span.Name] = append(attrs[span.Name], event.Attributes...)
			if !slices.Contains(events[span.Name], event.Name) {
				events[span.Name] = append(events[span.Name], event.Name)
			}
		}
	}
	got = make(map[string]row)
	for name := range attrs {
		got[name] = row{attributes: keys(attrs[name]), events: strings.Join(events[name], " ")}
	}
	if !maps.Equal(got, wantSpans) {
		t.Errorf("spans\nreported %v\ndocument %v", got, wantSpans)
	}
}

// A process whose later record says no due must not keep exporting the earlier one: an alert would fire for ever.
func TestARunWithoutADueTakesBackTheDueReportedBefore(t *testing.T) {
	s := newSDK()
	tel := telemetry.New(s.options)
	at := time.Unix(1_000, 0)
	tel.Ran(holdfast.KindLock, "taken-back", at, at.Add(time.Minute))
	tel.Ran(holdfast.KindLock, "taken-back", at.Add(time.Second), time.Time{})
	tel.Ran(holdfast.KindLock, "kept", at, at.Add(time.Minute))
	tel.Ran(holdfast.KindElection, "kept", at, time.Time{}) // another job
	tel.Ran(holdfast.KindLock, "\xff", at, time.Time{})

	var collected metricdata.ResourceMetrics
	if err := s.metrics.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if m.Name != "holdfast.run.due" {
			continue
		}
		for _, p := range m.Data.(metricdata.Gauge[float64]).DataPoints {
			kind, _ := p.Attributes.Value("holdfast.kind")
			name, _ := p.Attributes.Value("holdfast.name")
			got[kind.AsString()+" "+name.AsString()] = p.Value
		}
	}
	want := map[string]float64{"lock taken-back": 0, "lock kept": 1_060, "election kept": 0, "lock \uFFFD": 0}
	if !maps.Equal(got, want) {
		t.Errorf("due %v, want %v", got, want)
	}
}

// pointKeys returns the attribute keys of all points.
func pointKeys[P any](points []P, of func(P) attribute.Set) string {
	var all [][]attribute.KeyValue
	for _, p := range points {
		set := of(p)
		all = append(all, set.ToSlice())
	}
	return keys(all...)
}
