// Package telemetry is all that holdfast reports through OpenTelemetry: spans
// and metrics, their names, units and attributes, in one place. It imports the
// API only; who wants to see something brings an SDK.
//
// docs/telemetry.md is the table for users, held against this package by its
// test.
//
// What is reported never carries the name of a lock, nor an error's text, which
// may quote one: names are data, of any number, and not every backend may see
// them. A user's function may add them (see [Options]).
package telemetry

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the tracer and of the meter.
const Scope = "github.com/holdfast-go/holdfast"

// Options say whom to report to.
type Options struct {
	// TracerProvider makes the tracer; nil: the global one does.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the meter; nil: the global one does.
	MeterProvider metric.MeterProvider

	// Attributes is asked, at every acquisition, for more attributes of a lock
	// or election. nil: none.
	Attributes func(kind, name string) []attribute.KeyValue
}

// Telemetry has the instruments of one session. Safe for concurrent use.
type Telemetry struct {
	tracer trace.Tracer
	extra  func(kind, name string) []attribute.KeyValue

	sessions metric.Int64UpDownCounter
	renewals metric.Float64Histogram
	margin   metric.Float64Gauge
	losses   metric.Int64Counter

	waits     metric.Float64Histogram
	holds     metric.Float64Histogram
	ambiguous metric.Int64Counter
	sweeps    metric.Int64Counter
	audits    metric.Int64Counter
}

// New makes the instruments. Where the SDK refuses one it is told so itself, by
// OpenTelemetry's error handler, and the instrument does nothing: no lock fails
// for want of a metric.
func New(o Options) *Telemetry {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.Attributes == nil {
		o.Attributes = func(string, string) []attribute.KeyValue { return nil }
	}
	m := o.MeterProvider.Meter(Scope)
	return &Telemetry{
		tracer: o.TracerProvider.Tracer(Scope),
		extra:  o.Attributes,

		sessions: made(m.Int64UpDownCounter("holdfast.sessions", metric.WithUnit("{session}"),
			metric.WithDescription("Open sessions by state."))),
		renewals: made(m.Float64Histogram("holdfast.renewal.duration", metric.WithUnit("s"), seconds,
			metric.WithDescription("Time from sending a lease renewal to the proof that it counts, or to its failure."))),
		margin: made(m.Float64Gauge("holdfast.renewal.margin", metric.WithUnit("s"),
			metric.WithDescription("Trusted time that was left when the latest renewal was confirmed."))),
		losses: made(m.Int64Counter("holdfast.losses", metric.WithUnit("{loss}"),
			metric.WithDescription("Sessions, locks and terms that were lost, by cause."))),

		waits: made(m.Float64Histogram("holdfast.acquire.duration", metric.WithUnit("s"), seconds,
			metric.WithDescription("Time from asking for a lock or term to its outcome."))),
		holds: made(m.Float64Histogram("holdfast.hold.duration", metric.WithUnit("s"), seconds,
			metric.WithDescription("Time from getting a lock or term to its release or loss."))),
		ambiguous: made(m.Int64Counter("holdfast.replies.ambiguous", metric.WithUnit("{reply}"),
			metric.WithDescription("Requests that may or may not have been carried out, as no answer came."))),
		audits: made(m.Int64Counter("holdfast.audits.unanswered", metric.WithUnit("{request}"),
			metric.WithDescription("Requests that look for the entries of held locks and terms and were not answered."))),
		sweeps: made(m.Int64Counter("holdfast.sweeps", metric.WithUnit("{entry}"),
			metric.WithDescription("Entries that etcd refused to remove; the session tries until it can or the lease ends."))),
	}
}

// seconds are the buckets of all histograms: from a hand-over on a fast disk to
// a hold of minutes.
var seconds = metric.WithExplicitBucketBoundaries(
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)

func made[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

// Attribute keys.
const (
	kindKey     = attribute.Key("holdfast.kind")     // lock, election, session
	outcomeKey  = attribute.Key("holdfast.outcome")  // how it ended
	causeKey    = attribute.Key("holdfast.cause")    // of a loss
	stateKey    = attribute.Key("holdfast.state")    // of a session
	requestKey  = attribute.Key("holdfast.request")  // what was not answered
	positionKey = attribute.Key("holdfast.position") // entries ahead
	unprovenKey = attribute.Key("holdfast.unproven") // seconds since the last confirmed renewal was sent
	errorKey    = attribute.Key("holdfast.error")    // class of an error
)
