// Package telemetry defines the spans and metrics that holdfast reports through OpenTelemetry: their names, units and
// attributes. It imports OpenTelemetry's API only; to see them add an SDK. docs/telemetry.md lists all of them for
// users, and this package's test compares the two.
//
// No span or metric carries the name of a lock or the text of an error, which may quote one: names have no bounded
// number of values, and not every backend may see them. A user's function may add attributes (see [Options]). The
// metrics of recurring jobs carry a name, because an alert must say which job is overdue. There are such metrics only
// for names whose runs the user records.
package telemetry

import (
	"cmp"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// scope is the name of the tracer and of the meter.
const scope = "github.com/holdfast-go/holdfast"

// Options select where to report.
type Options struct {
	// TracerProvider provides the tracer. nil: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider provides the meter. nil: the global one.
	MeterProvider metric.MeterProvider

	// Attributes returns attributes to add for a lock or election; each acquisition calls it. nil: none.
	Attributes func(kind holdfast.Kind, name string) []attribute.KeyValue
}

// Telemetry holds the instruments of one session. It is safe for concurrent use.
type Telemetry struct {
	tracer trace.Tracer
	extra  func(kind holdfast.Kind, name string) []attribute.KeyValue // nil: none

	instruments
}

// instruments has all instruments.
type instruments struct {
	sessions metric.Int64UpDownCounter
	renewals metric.Float64Histogram
	margin   metric.Float64Gauge
	losses   metric.Int64Counter

	waiting   metric.Int64UpDownCounter // what waits now
	held      metric.Int64UpDownCounter // what is held now
	waits     metric.Float64Histogram
	holds     metric.Float64Histogram
	ambiguous metric.Int64Counter
	sweeps    metric.Int64Counter
	polls     metric.Int64Counter

	ran metric.Float64Gauge
	due metric.Float64Gauge

	shards shardInstruments
}

// shardInstruments are those of package shard.
type shardInstruments struct {
	states, number, reserved, leftOver metric.Int64UpDownCounter
	failures                           metric.Int64Counter
}

// New creates the instruments. If the SDK refuses one, OpenTelemetry's error handler is told and the instrument does
// nothing: a missing metric must not keep a session from starting.
func New(o Options) *Telemetry {
	return &Telemetry{
		tracer:      cmp.Or(o.TracerProvider, otel.GetTracerProvider()).Tracer(scope),
		extra:       o.Attributes,
		instruments: newInstruments(cmp.Or(o.MeterProvider, otel.GetMeterProvider()).Meter(scope)),
	}
}

func newInstruments(m metric.Meter) instruments {
	return instruments{
		sessions: orNothing(m.Int64UpDownCounter("holdfast.sessions", metric.WithUnit("{session}"),
			metric.WithDescription("Open sessions by state."))),
		renewals: orNothing(m.Float64Histogram("holdfast.renewal.duration", metric.WithUnit("s"), buckets,
			metric.WithDescription("Time from sending a lease renewal until it was confirmed or failed."))),
		margin: orNothing(m.Float64Gauge("holdfast.renewal.margin", metric.WithUnit("s"),
			metric.WithDescription("Trusted time left when the latest renewal was confirmed."))),
		losses: orNothing(m.Int64Counter("holdfast.losses", metric.WithUnit("{loss}"),
			metric.WithDescription("Sessions, locks and terms that were lost, by cause."))),

		waiting: orNothing(m.Int64UpDownCounter("holdfast.waiting", metric.WithUnit("{lock}"),
			metric.WithDescription("Calls that wait for a lock or a term now."))),
		held: orNothing(m.Int64UpDownCounter("holdfast.held", metric.WithUnit("{lock}"),
			metric.WithDescription("Locks and terms that are held now."))),
		waits: orNothing(m.Float64Histogram("holdfast.acquire.duration", metric.WithUnit("s"), buckets,
			metric.WithDescription("Time from asking for a lock or term to its outcome."))),
		holds: orNothing(m.Float64Histogram("holdfast.hold.duration", metric.WithUnit("s"), buckets,
			metric.WithDescription("Time from acquiring a lock or term to its release or loss."))),
		ambiguous: orNothing(m.Int64Counter("holdfast.replies.ambiguous", metric.WithUnit("{reply}"),
			metric.WithDescription("Requests without a reply, which may or may not have been carried out."))),
		polls: orNothing(m.Int64Counter("holdfast.polls.unanswered", metric.WithUnit("{request}"),
			metric.WithDescription("Unanswered requests that look for the entries of held locks and terms."))),
		sweeps: orNothing(m.Int64Counter("holdfast.sweeps", metric.WithUnit("{entry}"),
			metric.WithDescription("Entries that etcd refused to remove; the session retries until it can or the lease ends."))),

		ran: orNothing(m.Float64Gauge("holdfast.run.time", metric.WithUnit("s"),
			metric.WithDescription("When a recurring job was last recorded to have run, in seconds since 1970."))),
		due: orNothing(m.Float64Gauge("holdfast.run.due", metric.WithUnit("s"),
			metric.WithDescription("When the next run of a recurring job is overdue, in seconds since 1970; 0: not said."))),

		shards: shardInstruments{
			states: orNothing(m.Int64UpDownCounter("holdfast.shards", metric.WithUnit("{shard}"),
				metric.WithDescription("Shards that are assigned to this member or owned by it, by state."))),
			number: orNothing(m.Int64UpDownCounter("holdfast.shards.number", metric.WithUnit("{shard}"),
				metric.WithDescription("How many shards there are, as each member says."))),
			reserved: orNothing(m.Int64UpDownCounter("holdfast.shards.reserved", metric.WithUnit("{shard}"),
				metric.WithDescription("Shards kept for members that are absent and expected back, as each member says."))),
			leftOver: orNothing(m.Int64UpDownCounter("holdfast.shards.unplaced", metric.WithUnit("{shard}"),
				metric.WithDescription("Shards that no member has room for, as each member says."))),
			failures: orNothing(m.Int64Counter("holdfast.shard.failures", metric.WithUnit("{failure}"),
				metric.WithDescription("Functions of shards that failed, by how."))),
		},
	}
}

// buckets are the boundaries of all histograms, in seconds: from a hand-off on a fast disk to a hold of minutes.
var buckets = metric.WithExplicitBucketBoundaries(
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)

// orNothing reports an instrument's error. The instrument beside it is usable: it records nothing.
func orNothing[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

// Attribute keys.
const (
	kindKey     = attribute.Key("holdfast.kind")     // lock, election, session
	nameKey     = attribute.Key("holdfast.name")     // of a lock or election whose runs are recorded
	outcomeKey  = attribute.Key("holdfast.outcome")  // how it ended
	causeKey    = attribute.Key("holdfast.cause")    // of a loss
	stateKey    = attribute.Key("holdfast.state")    // of a session or shard
	requestKey  = attribute.Key("holdfast.request")  // the request without a reply
	positionKey = attribute.Key("holdfast.position") // number of entries ahead
	unprovenKey = attribute.Key("holdfast.unproven") // seconds since the last confirmed renewal was sent
	errorKey    = attribute.Key("holdfast.error")    // class of an error
)
