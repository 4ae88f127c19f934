package telemetry

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// State moves a session from one state to another in the count of open sessions. A closed session is not counted.
func (t *Telemetry) State(from, to holdfast.State) {
	ctx := context.Background()
	if from != holdfast.Closed {
		t.sessions.Add(ctx, -1, metric.WithAttributes(stateKey.String(from.String())))
	}
	if to != holdfast.Closed {
		t.sessions.Add(ctx, 1, metric.WithAttributes(stateKey.String(to.String())))
	}
}

// Renewed records a confirmed renewal and the trusted time that was left.
func (t *Telemetry) Renewed(sent time.Time, left time.Duration) {
	ctx := context.Background()
	t.renewals.Record(ctx, time.Since(sent).Seconds(), metric.WithAttributes(outcomeKey.String("confirmed")))
	t.margin.Record(ctx, left.Seconds())
}

// RenewalFailed records a renewal without confirmation. Only these have a span: spans of all others would bury them.
func (t *Telemetry) RenewalFailed(sent time.Time, outcome, class string) {
	ctx := context.Background()
	t.renewals.Record(ctx, time.Since(sent).Seconds(), metric.WithAttributes(outcomeKey.String(outcome)))
	_, span := t.tracer.Start(ctx, "holdfast.renewal", trace.WithTimestamp(sent),
		trace.WithAttributes(outcomeKey.String(outcome), errorKey.String(class)))
	span.SetStatus(codes.Error, outcome)
	span.End()
}

// SessionLost records the loss of a session's lease. unproven is the time since the last confirmed renewal was sent.
func (t *Telemetry) SessionLost(cause string, unproven time.Duration) {
	t.lost(trace.SpanContext{}, []attribute.KeyValue{kindKey.String("session")}, cause, unproven)
}

// lost counts a loss and reports it as a span, linked to the span of the acquisition that it ended.
func (t *Telemetry) lost(
	acquisition trace.SpanContext, attrs []attribute.KeyValue, cause string, unproven time.Duration,
) {
	ctx := context.Background()
	attrs = append(attrs[:len(attrs):len(attrs)], causeKey.String(cause))
	t.losses.Add(ctx, 1, metric.WithAttributes(attrs...))
	_, span := t.tracer.Start(ctx, "holdfast.loss",
		trace.WithAttributes(attrs...), trace.WithAttributes(unprovenKey.Float64(unproven.Seconds())),
		trace.WithLinks(trace.Link{SpanContext: acquisition}))
	span.SetStatus(codes.Error, cause)
	span.End()
}

// Ran reports when the job of a name ran last, in whatever process, and when its next run is overdue. A zero due is
// reported as 0, which takes back what was reported before: a gauge cannot be withdrawn.
func (t *Telemetry) Ran(kind holdfast.Kind, name string, at, due time.Time) {
	ctx := context.Background()
	label := strings.ToValidUTF8(name, "\uFFFD") // of another one Prometheus' exporter makes an error of all metrics
	attrs := []attribute.KeyValue{kindKey.String(string(kind)), nameKey.String(label)}
	if t.extra != nil {
		attrs = append(attrs, t.extra(kind, name)...)
	}
	withAttrs := metric.WithAttributes(attrs...)
	t.ran.Record(ctx, seconds(at), withAttrs)
	t.due.Record(ctx, seconds(due), withAttrs)
}

// seconds are those since 1970; 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// Shards reports what a member knows of the shards of one name.
type Shards struct {
	t        *Telemetry
	attrs    []attribute.KeyValue
	reserved int // as it was reported last; one goroutine uses it
	leftOver int // likewise
}

// Shards returns the reports for a name.
func (t *Telemetry) Shards(name string) *Shards {
	s := &Shards{t: t}
	if t.extra != nil {
		s.attrs = t.extra(holdfast.KindShard, name)
	}
	return s
}

// Begin reports how many shards there are, until end is called. It makes the series of all states: without one of them
// a difference of series would have no value.
func (s *Shards) Begin(n int) (end func()) {
	ctx, plain := context.Background(), metric.WithAttributes(s.attrs...)
	s.t.shards.number.Add(ctx, int64(n), plain)
	s.t.shards.reserved.Add(ctx, 0, plain)
	s.t.shards.leftOver.Add(ctx, 0, plain)
	for _, state := range []string{"waiting", "owned"} {
		s.t.shards.states.Add(ctx, 0, s.with(stateKey.String(state)))
	}
	return func() {
		s.Reserved(0)
		s.LeftOver(0)
		s.t.shards.number.Add(ctx, int64(-n), plain)
	}
}

// Reserved reports how many shards wait for absent members.
func (s *Shards) Reserved(n int) {
	s.t.shards.reserved.Add(context.Background(), int64(n-s.reserved), metric.WithAttributes(s.attrs...))
	s.reserved = n
}

// LeftOver reports how many shards no member has room for.
func (s *Shards) LeftOver(n int) {
	s.t.shards.leftOver.Add(context.Background(), int64(n-s.leftOver), metric.WithAttributes(s.attrs...))
	s.leftOver = n
}

// State moves one shard from one state to another in the count of shards: "waiting", "owned", or "" for neither.
func (s *Shards) State(from, to string) {
	if from != "" {
		s.t.shards.states.Add(context.Background(), -1, s.with(stateKey.String(from)))
	}
	if to != "" {
		s.t.shards.states.Add(context.Background(), 1, s.with(stateKey.String(to)))
	}
}

// Failed counts a failure of a function: error, panic, returned or not drained.
func (s *Shards) Failed(outcome string) {
	s.t.shards.failures.Add(context.Background(), 1, s.with(outcomeKey.String(outcome)))
}

func (s *Shards) with(kv attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(s.attrs[:len(s.attrs):len(s.attrs)], kv)...)
}
