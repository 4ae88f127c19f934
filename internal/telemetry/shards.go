package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast"
)

// Shards reports on the shards of one name that a member has its part of.
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

// Begin reports how many shards there are, until end is called. The series of all states exist from then on: a
// difference of series is nothing where one of them does not exist.
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

// Reserved reports how many shards wait for members that are absent and expected back.
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
