package election_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

func TestZeroElectionGivesAnErrorAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, *election.Term) error { return nil }
	zero := &election.Election{}
	for what, err := range map[string]error{
		"Campaign":       func() error { _, err := zero.Campaign(t.Context(), "v"); return err }(),
		"Run":            zero.Run(t.Context(), "v", nothing),
		"RunWhileLeader": zero.With(opts{}).RunWhileLeader(t.Context(), "v", nothing),
		"Leader":         func() error { _, err := zero.Leader(t.Context()); return err }(),
		"Observer":       func() error { _, err := zero.Observer(t.Context()); return err }(),
		"Observe": func() (last error) {
			for _, err := range zero.Observe(t.Context()) {
				last = err
			}
			return last
		}(),
	} {
		var argument *holdfast.ArgumentError
		if !errors.As(err, &argument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if zero.Name() != "" {
		t.Errorf("name %q", zero.Name())
	}
	if status, answer := ask(t, zero.HealthHandler()); status != 503 || answer["reason"] == nil {
		t.Errorf("health: %d %v", status, answer)
	}
}
