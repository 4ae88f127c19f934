package simulation

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// enough is the number of schedules from which on a test checks that they prove something.
const enough = 12

var (
	firstSeed = flag.Uint64("simulation.seed", 1, "seed of the first schedule")
	schedules = flag.Int("simulation.count", enough, "number of schedules of each test, each with the next seed")
	trace     = flag.Bool("simulation.trace", false, "print a trace of each schedule")
)

// Sessions and mutexes run against etcdfake in virtual time under faults drawn from a seed.
func TestSimulationOfMutexes(t *testing.T) {
	simulateAll(t, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, administered: true}
	}, map[string]int{oracle.Granted: 1})
}

// The same with so many goroutines that the sessions batch their Txns.
func TestSimulationOfBusySessions(t *testing.T) {
	simulateAll(t, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, busy: true, administered: true}
	}, map[string]int{oracle.Granted: 1, batches: 1})
}

// Half of the holds have MinHold.
func TestSimulationOfMinHold(t *testing.T) {
	simulateAll(t, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, minHold: true}
	}, map[string]int{oracle.Granted: 1, oracle.Taken: 1})
}

// What a schedule has, beside what the oracle counts.
const (
	batches = "batches of Txns"
	asked   = "holds that an administrator has ended"
)

// simulateAll runs the schedules. Together they must have had the least numbers of what is to be shown, for each of
// them on average, or they prove nothing.
func simulateAll(t *testing.T, plan func(seed uint64) *simulation, least map[string]int) {
	start := time.Now()
	var mu sync.Mutex // protects what follows
	all, most := oracle.NewStats(), int64(0)
	t.Run("schedules", func(t *testing.T) {
		for i := range *schedules {
			seed := *firstSeed + uint64(i)
			t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
				t.Parallel()
				s := plan(seed)
				s.simulate(t)
				mu.Lock()
				defer mu.Unlock()
				all.Add(s.verdict.Stats)
				all.Counts[batches] += int(s.batches.Load())
				all.Counts[asked] += s.asked
				most = max(most, s.requests.Load())
			})
		}
	})
	took := time.Since(start)
	t.Logf("%d schedules in %v (%.0f a minute, %d CPUs), at most %d requests in one\n%v", *schedules,
		took.Round(time.Millisecond), float64(*schedules)/took.Minutes(), runtime.GOMAXPROCS(0), most, all)
	for what, n := range least {
		if *schedules >= enough && all.Counts[what] < n**schedules {
			t.Errorf("the test proves nothing: %d schedules had %d %s, want %d", *schedules, all.Counts[what], what,
				n**schedules)
		}
	}
}

// simulate runs the schedule in its own bubble.
func (s *simulation) simulate(t *testing.T) {
	defer func() {
		if p := recover(); p != nil { // mostly for leaked goroutines
			s.fail("%v", p)
		}
		if *trace {
			t.Logf("seed %d, trace %x:\n%s", s.seed, s.hash(), s.traceText())
		}
		for _, v := range s.violations {
			test, _, _ := strings.Cut(t.Name(), "/")
			t.Errorf("seed %d: %s\nrepeat: go test ./tests/simulation -run %s -simulation.seed=%d -simulation.count=1 "+
				"-simulation.trace -v", s.seed, v, test, s.seed)
		}
	}()
	bubble.Test(t, func(*testing.T) { s.run() })
}
