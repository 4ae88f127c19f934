package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast"
)

// Shards reports on the shards of one name that a member has its part of.
type Shards struct {
	t     *Telemetry
	attrs []attribute.KeyValue
}

// Shards returns the reports for a name.
func (t *Telemetry) Shards(name string) *Shards { return &Shards{t, t.extra(holdfast.KindShard, name)} }

// State moves one shard from one state to another in the count of shards: "waiting", "owned", or "" for neither.
func (s *Shards) State(from, to string) {
	if from != "" {
		s.t.shards.Add(context.Background(), -1, s.with(stateKey.String(from)))
	}
	if to != "" {
		s.t.shards.Add(context.Background(), 1, s.with(stateKey.String(to)))
	}
}

// Failed counts a failure of a function: error, panic or not drained.
func (s *Shards) Failed(outcome string) {
	s.t.failures.Add(context.Background(), 1, s.with(outcomeKey.String(outcome)))
}

func (s *Shards) with(kv attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(s.attrs[:len(s.attrs):len(s.attrs)], kv)...)
}
