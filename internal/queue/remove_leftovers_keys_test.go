package queue

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// The key of an attempt is used again unless a copy of its put was not answered.
func TestKeyIsUsedAgainIfEachCopyOfItsPutWasAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		stage  stage
		open   int64 // by how much the gate of an unanswered copy is older than the present one; -1: all were answered
		reused bool
	}{
		"nothing was sent":                            {unsent, -1, true},
		"released, all answered":                      {placed, -1, true},
		"released, a copy unanswered at an old gate":  {placed, 1, false},
		"released, a copy unanswered at this gate":    {placed, 0, false},
		"never answered, at this gate":                {sent, 0, false},
		"never answered, at an old gate":              {sent, 1, false},
		"refused, and not answered what stands there": {sent, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				q, lease := p.queue("x"), p.Host.Lease()
				e := (&attempt{lease: lease}).newEntry(q)
				e.reach(c.stage)
				if c.open >= 0 {
					e.of.unansweredAt = lease.Gate() - c.open
				}
				e.finish()
				if reused := (&attempt{lease: lease}).newEntry(q).Key == e.Key; reused != c.reused {
					t.Errorf("the key was used again: %v", reused)
				}
				time.Sleep(time.Minute)
				if n := q.Used(); n != 1 { // that of the entry made last
					t.Errorf("%d keys are in use, want 1", n)
				}
			})
		})
	}
}
