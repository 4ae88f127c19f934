package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// Acquisition reports one lock or term, from the call that asks for it to its release or loss: one span for the wait,
// and another for the release or loss. Locks that are acquired together share the reports of the first; the others have
// a nil Acquisition, and it reports nothing.
type Acquisition struct {
	t         *Telemetry
	attrs     []attribute.KeyValue
	withAttrs trace.SpanStartEventOption
	span      trace.Span
	asked     time.Time
	counted   metric.MeasurementOption // the attributes of its counts; nil: it is not counted
}

// Acquire starts an acquisition. The returned context carries its span, for Queued and Woken.
func (t *Telemetry) Acquire(ctx context.Context, kind holdfast.Kind, name string) (context.Context, *Acquisition) {
	a := &Acquisition{t: t, asked: time.Now()}
	a.attrs = []attribute.KeyValue{kindKey.String(string(kind))}
	if t.extra != nil {
		a.attrs = append(a.attrs, t.extra(kind, name)...)
	}
	a.withAttrs = trace.WithAttributes(a.attrs...)
	ctx, a.span = t.tracer.Start(ctx, "holdfast.acquire", a.withAttrs)
	// If nothing collects the counts now, a is not counted later either: a counter must not only go down. Attributes cost
	// allocations, so they are made here, once.
	if isCollected(t.waiting) {
		a.counted = metric.WithAttributes(a.attrs...)
		a.count(t.waiting, 1)
	}
	return ctx, a
}

// Queued adds an event: the entry stands, with ahead entries before it.
func Queued(ctx context.Context, ahead int64) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("queued", trace.WithAttributes(positionKey.Int64(ahead)))
	}
}

// Woken adds an event: the entry ahead is gone.
func Woken(ctx context.Context) { trace.SpanFromContext(ctx).AddEvent("woken") }

// Held ends the wait: a read has found the entry, and the lock or term is held.
func (a *Acquisition) Held() {
	if a == nil {
		return
	}
	a.count(a.t.waiting, -1)
	a.count(a.t.held, 1)
	a.span.AddEvent("verified")
	a.endWait("held")
}

// Failed ends the wait without a hold. isError tells an error from an outcome, such as "occupied".
func (a *Acquisition) Failed(outcome string, isError bool) {
	a.count(a.t.waiting, -1)
	if isError {
		a.span.SetStatus(codes.Error, outcome)
	}
	a.endWait(outcome)
}

func (a *Acquisition) endWait(outcome string) {
	a.record(a.t.waits, time.Since(a.asked), outcome)
	if a.span.IsRecording() {
		a.span.SetAttributes(outcomeKey.String(outcome))
	}
	a.span.End()
}

// Release starts the span of a release. The returned context carries it, for the RPCs. Call end with the error of the
// release, or nil.
func (a *Acquisition) Release(ctx context.Context) (_ context.Context, end func(err error)) {
	if a == nil || !a.span.SpanContext().IsValid() {
		return ctx, func(error) {} // no SDK collects spans
	}
	link := trace.WithLinks(trace.Link{SpanContext: a.span.SpanContext()})
	ctx, span := a.t.tracer.Start(ctx, "holdfast.release", a.withAttrs, link)
	return ctx, func(err error) {
		outcome := "released"
		if err != nil {
			outcome = failureOf(err)
			span.SetStatus(codes.Error, outcome)
		}
		span.SetAttributes(outcomeKey.String(outcome))
		span.End()
	}
}

// failureOf returns the outcome of a release by its error.
func failureOf(err error) string {
	switch {
	case errors.Is(err, holdfast.ErrOutcomeUnknown):
		return "unknown"
	case errors.Is(err, holdfast.ErrLost):
		return "lost"
	default:
		return "failed"
	}
}

// Released records the end of a hold by its release.
func (a *Acquisition) Released(held time.Duration) {
	if a != nil {
		a.count(a.t.held, -1)
		a.record(a.t.holds, held, "released")
	}
}

// Lost records the end of a hold by its loss. unproven is the time since the last confirmed renewal was sent.
func (a *Acquisition) Lost(held time.Duration, cause string, unproven time.Duration) {
	if a == nil {
		return
	}
	a.count(a.t.held, -1)
	a.record(a.t.holds, held, "lost")
	a.t.lost(a.span.SpanContext(), a.attrs, cause, unproven)
}

// GoesOn notes that Released or Lost will be called once more: a downgraded lock ends as a writer and as a reader.
func (a *Acquisition) GoesOn() {
	if a != nil {
		a.count(a.t.held, 1)
	}
}

// count adds n to counter: to what waits, or to what is held.
func (a *Acquisition) count(counter metric.Int64UpDownCounter, n int64) {
	if a.counted != nil {
		counter.Add(context.Background(), n, a.counted)
	}
}

// isCollected asks an instrument whether anything collects it. Before OpenTelemetry 1.40 the answer is yes.
func isCollected(instrument any) bool {
	i, ok := instrument.(interface{ Enabled(context.Context) bool })
	return !ok || i.Enabled(context.Background())
}

// record adds a duration to h, if anything collects that. The context carries the span, for exemplars.
func (a *Acquisition) record(h metric.Float64Histogram, d time.Duration, outcome string) {
	if !isCollected(h) {
		return
	}
	attrs := append(a.attrs[:len(a.attrs):len(a.attrs)], outcomeKey.String(outcome))
	h.Record(trace.ContextWithSpan(context.Background(), a.span), d.Seconds(), metric.WithAttributes(attrs...))
}

// Ambiguous counts a request (enqueue, remove, move or proclaim) without a reply, so it is not known whether it was
// carried out.
func (t *Telemetry) Ambiguous(kind holdfast.Kind, request string) {
	attrs := metric.WithAttributes(kindKey.String(string(kind)), requestKey.String(request))
	t.ambiguous.Add(context.Background(), 1, attrs)
}

// Sweeping counts an entry after etcd has refused to remove it.
func (t *Telemetry) Sweeping(kind holdfast.Kind) {
	t.sweeps.Add(context.Background(), 1, metric.WithAttributes(kindKey.String(string(kind))))
}

// PollFailed counts an unanswered poll of the entries of holds.
func (t *Telemetry) PollFailed() { t.polls.Add(context.Background(), 1) }
