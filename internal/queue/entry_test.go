package queue

import "testing"

func TestStageOnlyGrows(t *testing.T) {
	e := &entry{}
	for _, to := range []stage{sent, placed, sent, held, placed, ended, held} {
		before := e.stage
		e.reach(to)
		if e.stage != max(before, to) {
			t.Errorf("from %d to %d: %d", before, to, e.stage)
		}
	}
}
