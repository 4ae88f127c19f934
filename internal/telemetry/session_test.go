package telemetry_test

import (
	"maps"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// The sum over the states is the number of open sessions.
func TestSessionStatesAddUp(t *testing.T) {
	s := newSDK()
	tel := telemetry.New(s.options)
	tel.State(holdfast.Closed, holdfast.Connected)
	tel.State(holdfast.Closed, holdfast.Connected)
	tel.State(holdfast.Connected, holdfast.Suspended)
	tel.State(holdfast.Suspended, holdfast.Closed)
	var collected metricdata.ResourceMetrics
	if err := s.metrics.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for _, p := range collected.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		state, _ := p.Attributes.Value("holdfast.state")
		got[state.AsString()] = p.Value
	}
	if want := map[string]int64{"connected": 1, "suspended": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
