package bubble

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestRaceDetectorSurvivesTimersOfOneInstant(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	for range 300 {
		Test(t, func(*testing.T) {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					timer := time.NewTimer(time.Millisecond)
					defer timer.Stop()
					for i := range 400 {
						<-timer.C
						timer.Reset(time.Duration(i%2) * time.Millisecond) // every other one is due at once
					}
				})
				wg.Go(func() {
					for range 300 {
						time.Sleep(time.Millisecond)
					}
				})
			}
			wg.Wait()
		})
	}
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("GOMAXPROCS is %d after the bubbles, %d before", n, before)
	}
}
