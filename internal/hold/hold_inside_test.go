package hold

import (
	"testing"
)

// A lease may be lost before the timers of a hold run.
func TestHoldThatEndsBeforeItsTimersRun(t *testing.T) {
	t.Parallel()
	h := &Hold{life: &life{idle: &idle{}}}
	h.takeContexts()
	if !h.done.given {
		t.Error("it has not ended")
	}
}
