package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Acquisition is one call for a lock or a term, from the call to the end of
// what it got: a span while it waits, and another one for the release or the
// loss.
type Acquisition struct {
	t         *Telemetry
	attrs     []attribute.KeyValue
	described trace.SpanStartEventOption // by attrs
	span      trace.Span
	asked     time.Time
}

// Acquire begins an acquisition. The context returned carries its span, to
// which Queued, Armed, Woken and Verified add their events.
func (t *Telemetry) Acquire(ctx context.Context, kind, name string) (context.Context, *Acquisition) {
	a := &Acquisition{t: t, asked: time.Now()}
	a.attrs = append([]attribute.KeyValue{kindKey.String(kind)}, t.extra(kind, name)...)
	a.described = trace.WithAttributes(a.attrs...)
	ctx, a.span = t.tracer.Start(ctx, "holdfast.acquire", a.described)
	return ctx, a
}

// Queued: the entry stands, with so many ahead of it.
func Queued(ctx context.Context, ahead int64) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("queued", trace.WithAttributes(positionKey.Int64(ahead)))
	}
}

// Armed: the watch of the predecessor stands.
func Armed(ctx context.Context) { trace.SpanFromContext(ctx).AddEvent("armed") }

// Woken: the predecessor was seen gone.
func Woken(ctx context.Context) { trace.SpanFromContext(ctx).AddEvent("woken") }

// Verified: a read saw the own entry, after the wait.
func Verified(ctx context.Context) { trace.SpanFromContext(ctx).AddEvent("verified") }

// Held ends the wait with a hold.
func (a *Acquisition) Held() { a.waited("held") }

// Failed ends the wait without one. isError is whether that is an error rather
// than an answer.
func (a *Acquisition) Failed(outcome string, isError bool) {
	if isError {
		a.span.SetStatus(codes.Error, outcome)
	}
	a.waited(outcome)
}

func (a *Acquisition) waited(outcome string) {
	a.record(a.t.waits, time.Since(a.asked), outcome)
	if a.span.IsRecording() {
		a.span.SetAttributes(outcomeKey.String(outcome))
	}
	a.span.End()
}

// Release begins the span of giving back what was held. end takes the outcome:
// released, lost or unknown.
func (a *Acquisition) Release(ctx context.Context) (end func(outcome string)) {
	_, span := a.t.tracer.Start(ctx, "holdfast.release", a.described, trace.WithLinks(trace.Link{SpanContext: a.span.SpanContext()}))
	return func(outcome string) {
		if !span.IsRecording() {
			return
		}
		span.SetAttributes(outcomeKey.String(outcome))
		if outcome != "released" {
			span.SetStatus(codes.Error, outcome)
		}
		span.End()
	}
}

// Released ends the hold, after so long.
func (a *Acquisition) Released(held time.Duration) { a.ended(held, "released") }

// Lost ends the hold, after so long, for a cause.
func (a *Acquisition) Lost(held time.Duration, cause string, unproven time.Duration) {
	a.ended(held, "lost")
	a.t.lost(a.span.SpanContext(), a.attrs, cause, unproven)
}

func (a *Acquisition) ended(held time.Duration, outcome string) {
	a.record(a.t.holds, held, outcome)
}

// record spares those who listen to nothing the cost of the attributes. The
// span goes along for exemplars.
func (a *Acquisition) record(h metric.Float64Histogram, d time.Duration, outcome string) {
	// OpenTelemetry before 1.40 has no Enabled.
	if e, ok := h.(interface{ Enabled(context.Context) bool }); ok && !e.Enabled(context.Background()) {
		return
	}
	attrs := append(a.attrs[:len(a.attrs):len(a.attrs)], outcomeKey.String(outcome))
	h.Record(trace.ContextWithSpan(context.Background(), a.span), d.Seconds(), metric.WithAttributes(attrs...))
}

// Ambiguous counts a request of which nobody knows whether it was carried out:
// to enqueue, or to remove.
func (t *Telemetry) Ambiguous(kind, request string) {
	t.ambiguous.Add(context.Background(), 1, metric.WithAttributes(kindKey.String(kind), requestKey.String(request)))
}

// Sweeping counts an entry that is swept.
func (t *Telemetry) Sweeping(kind string) {
	t.sweeps.Add(context.Background(), 1, metric.WithAttributes(kindKey.String(kind)))
}

// AuditFailed counts a look for held entries that etcd did not answer.
func (t *Telemetry) AuditFailed() { t.audits.Add(context.Background(), 1) }
