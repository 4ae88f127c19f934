package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// State counts a session out of one state and into another; "" is neither.
func (t *Telemetry) State(from, to string) {
	ctx := context.Background()
	if from != "" {
		t.sessions.Add(ctx, -1, metric.WithAttributes(stateKey.String(from)))
	}
	if to != "" {
		t.sessions.Add(ctx, 1, metric.WithAttributes(stateKey.String(to)))
	}
}

// Renewed reports a renewal that counts, and the trusted time that was left.
func (t *Telemetry) Renewed(sent time.Time, left time.Duration) {
	ctx := context.Background()
	t.renewals.Record(ctx, time.Since(sent).Seconds(), metric.WithAttributes(outcomeKey.String("confirmed")))
	t.margin.Record(ctx, left.Seconds())
}

// RenewalFailed reports a renewal that does not. It is the one kind of renewal
// that is worth a span.
func (t *Telemetry) RenewalFailed(sent time.Time, outcome, class string) {
	ctx := context.Background()
	t.renewals.Record(ctx, time.Since(sent).Seconds(), metric.WithAttributes(outcomeKey.String(outcome)))
	_, span := t.tracer.Start(ctx, "holdfast.renewal", trace.WithTimestamp(sent),
		trace.WithAttributes(outcomeKey.String(outcome), errorKey.String(class)))
	span.SetStatus(codes.Error, outcome)
	span.End()
}

// SessionLost reports the loss of a session's lease.
func (t *Telemetry) SessionLost(cause string, unproven time.Duration) {
	t.lost(trace.SpanContext{}, []attribute.KeyValue{kindKey.String("session")}, cause, unproven)
}

// lost counts a loss and makes a span of it, linked to what it ended.
func (t *Telemetry) lost(of trace.SpanContext, attrs []attribute.KeyValue, cause string, unproven time.Duration) {
	ctx := context.Background()
	attrs = append(attrs[:len(attrs):len(attrs)], causeKey.String(cause))
	t.losses.Add(ctx, 1, metric.WithAttributes(attrs...))
	_, span := t.tracer.Start(ctx, "holdfast.loss", trace.WithAttributes(attrs...),
		trace.WithAttributes(unprovenKey.Float64(unproven.Seconds())), trace.WithLinks(trace.Link{SpanContext: of}))
	span.SetStatus(codes.Error, cause)
	span.End()
}
