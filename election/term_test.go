package election_test

import (
	"context"
	"testing"
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
