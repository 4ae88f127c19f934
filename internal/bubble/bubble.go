// Package bubble runs tests in virtual time. It is synctest.Test, made safe under the race detector.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

var (
	mu    sync.Mutex // protects what follows
	open  int        // bubbles under the race detector
	procs int        // GOMAXPROCS before the first of them
)

// Test is synctest.Test. Under the race detector it has one processor.
//
// Go 1.25 and 1.26 give all timers of a bubble one race context, and use it from two threads at once when a goroutine
// selects on a channel timer that is already due while the bubble fires others. The race detector then crashes the
// whole test program with a segmentation violation (TestRaceDetectorSurvivesTimersOfOneInstant does so within a second
// without this). With one processor there is one thread at a time. No race goes unseen: the detector compares what is
// ordered, not what happened to run at once.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if race {
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
