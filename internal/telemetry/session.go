package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// State moves a session from one state to another in the count of open sessions.
// "" means not open.
func (t *Telemetry) State(from, to string) {
	ctx := context.Background()
	if from != "" {
		t.sessions.Add(ctx, -1, metric.WithAttributes(stateKey.String(from)))
	}
	if to != "" {
		t.sessions.Add(ctx, 1, metric.WithAttributes(stateKey.String(to)))
	}
}

// Renewed records a confirmed renewal and the trusted time that was left.
func (t *Telemetry) Renewed(sent time.Time, left time.Duration) {
	ctx := context.Background()
	t.renewals.Record(ctx, time.Since(sent).Seconds(), metric.WithAttributes(outcomeKey.String("confirmed")))
	t.margin.Record(ctx, left.Seconds())
}

// RenewalFailed records a renewal that was not confirmed. Only these have spans:
// the others would bury them.
func (t *Telemetry) RenewalFailed(sent time.Time, outcome, class string) {
	ctx := context.Background()
	t.renewals.Record(ctx, time.Since(sent).Seconds(), metric.WithAttributes(outcomeKey.String(outcome)))
	_, span := t.tracer.Start(ctx, "holdfast.renewal", trace.WithTimestamp(sent),
		trace.WithAttributes(outcomeKey.String(outcome), errorKey.String(class)))
	span.SetStatus(codes.Error, outcome)
	span.End()
}

// SessionLost records the loss of a session's lease. unproven is the time since
// the last confirmed renewal was sent.
func (t *Telemetry) SessionLost(cause string, unproven time.Duration) {
	t.lost(trace.SpanContext{}, []attribute.KeyValue{kindKey.String("session")}, cause, unproven)
}

// ClaimsLost records that etcd has lost the lease of a session's claims.
func (t *Telemetry) ClaimsLost() { t.claims.Add(context.Background(), 1) }

// lost counts a loss and reports it as a span, linked to the span of the
// acquisition that it ended.
func (t *Telemetry) lost(acquisition trace.SpanContext, attrs []attribute.KeyValue, cause string,
	unproven time.Duration) {
	ctx := context.Background()
	attrs = append(attrs[:len(attrs):len(attrs)], causeKey.String(cause))
	t.losses.Add(ctx, 1, metric.WithAttributes(attrs...))
	_, span := t.tracer.Start(ctx, "holdfast.loss",
		trace.WithAttributes(attrs...), trace.WithAttributes(unprovenKey.Float64(unproven.Seconds())),
		trace.WithLinks(trace.Link{SpanContext: acquisition}))
	span.SetStatus(codes.Error, cause)
	span.End()
}
