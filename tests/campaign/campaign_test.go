//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

func TestMain(m *testing.M) {
	child.Main(runWorker)
	leak.Main(m)
}

// Workers acquire locks of all kinds, and share shards. With one rule taken out by hand, -full failed: no lock delay; a
// reader that passes writers; a permit more than the limit. A lease that is trusted for 1.5 seconds longer failed in
// the first round of the command, seed 1. A short round fails if members want all shards.
func TestLockFamilyOnARealClusterUnderFaults(t *testing.T) {
	const enough = 10 // locks acquired
	o := options{
		duration: time.Hour, rounds: rounds.Of(2, 1), round: time.Duration(rounds.Of(20, 4)) * time.Second,
		seed: 1, workers: rounds.Of(4, 2), out: t.ArtifactDir(), progress: t.Output(),
	}
	s, err := run(t.Context(), o)
	if err != nil {
		t.Error(err)
	}
	t.Logf("\n%v", s)
	for _, v := range s.Violations {
		t.Error(v)
	}
	if s.Model.Held < enough/2 {
		t.Errorf("the test proves little: %d entries that were held were followed in the model", s.Model.Held)
	}
	if s.Leases.Renewals < o.workers {
		t.Errorf("the test proves little: %d renewals were followed in the model", s.Leases.Renewals)
	}
	if s.Acquisitions < enough {
		t.Errorf("the test proves nothing: %d locks were acquired in %d rounds", s.Acquisitions, s.Rounds)
	}
}
