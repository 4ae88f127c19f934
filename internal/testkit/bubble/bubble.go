// Package bubble runs tests in virtual time: it is synctest.Test without the crashes of the race detector. Users have
// it as etcdfake.Test.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

var (
	mu    sync.Mutex // protects open, procs
	open  int        // running bubbles
	procs int        // GOMAXPROCS before the first of them
)

// Test is synctest.Test, on one processor under the race detector.
//
// In Go 1.25 and 1.26 all timers of a bubble share one race context. Two threads use it at once if a goroutine selects
// on a channel timer that is already due while the bubble fires others. Then the race detector crashes the test program
// with a segmentation violation; without the limit TestRaceDetectorSurvivesTimersOfOneInstant does so within a second.
// On one processor only one thread runs at a time. The detector misses no race for that: it checks how accesses are
// ordered, not whether they happen at the same time.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if Race {
		oneProcessor()
		defer restore()
	}
	synctest.Test(t, f)
}

func oneProcessor() {
	mu.Lock()
	defer mu.Unlock()
	if open++; open == 1 {
		procs = runtime.GOMAXPROCS(1)
	}
}

func restore() {
	mu.Lock()
	defer mu.Unlock()
	if open--; open == 0 {
		runtime.GOMAXPROCS(procs)
	}
}
