package hold

import (
	"testing"
	"time"
)

// While one goroutine finds the work idle, another one that had looked at the clock in time records its progress.
func TestProgressThatAnotherGoroutineHasRecordedCounts(t *testing.T) {
	t.Parallel()
	for name, progressed := range map[string]bool{"in time": true, "not": false} {
		i := &idle{most: time.Second}
		reads := 0
		i.clock = func() time.Duration {
			if reads++; reads == 2 && progressed {
				i.last.Store(int64(time.Second - 1))
			}
			return time.Second
		}
		if got := i.progress(); got != progressed {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// While one goroutine records its progress, another one, which had looked at the clock before, has stored something.
func TestProgressIsNoneIfTheWorkWasFoundIdleMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stored time.Duration
		want   bool
	}{"progress": {1, true}, "the end": {tooLate, false}} {
		i := &idle{most: time.Second}
		i.clock = func() time.Duration {
			i.last.Store(int64(c.stored))
			return time.Second - 1
		}
		if got := i.progress(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Once the work was found idle it stays so, whatever a clock shows.
func TestIdleWorkIsIdleForever(t *testing.T) {
	t.Parallel()
	now := time.Second
	i := &idle{most: time.Second, clock: func() time.Duration { return now }}
	if !i.over() {
		t.Error("it is not idle")
	}
	if now = 0; !i.over() || i.progress() {
		t.Error("it is idle no more")
	}
}
