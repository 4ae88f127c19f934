package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

func TestResignOnADeadContextResigns(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		term := campaign(t, s.election(), "v")
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		if err := term.Resign(dead); err != nil {
			t.Error(err)
		}
		if kvs := s.entries(); len(kvs) != 0 {
			t.Errorf("entries %v", kvs)
		}
	})
}

func TestLeaderRecordsTheRunsOfItsJob(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		term := campaign(t, s.election(), "v")
		if err := term.RecordRun(deadline(t), "2026-03-29", time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := term.Resign(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if r, err := s.other(t).LastRun(deadline(t)); err != nil || r.Slot != "2026-03-29" || r.Token != term.Token() {
			t.Errorf("%+v, %v", r, err)
		}
		if err := term.RecordRun(deadline(t), "2026-03-30", 0); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("after the term: %v", err)
		}
	})
}
