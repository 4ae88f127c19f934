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
