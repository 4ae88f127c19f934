package robustness

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/bubble"
)

var (
	simulationSeed  = flag.Uint64("simulation.seed", 1, "first seed of the simulation")
	simulationCount = flag.Int("simulation.count", 6, "how many schedules to simulate, each with the next seed")
	simulationTrace = flag.Bool("simulation.trace", false, "print what happened in each schedule")
)

// simHang is how long one schedule may take in real time, where tens of
// milliseconds are usual.
const simHang = 2 * time.Minute

// The real Session and Mutex run against etcdfake in virtual time, under
// faults drawn from a seed; the judge is the fake's own history. A failure says
// with which seed; the command in it repeats that schedule. For a long run:
//
//	go test ./tests/robustness -run TestSimulation -simulation.count=100000 -timeout=0
func TestSimulationOfMutexes(t *testing.T) {
	simulateAll(t, func(seed uint64) *simulation { return &simulation{seed: seed, work: useMutexes, once: lockOnce} })
}

// The same with so many goroutines that the sessions send their Txns in groups.
func TestSimulationOfBusySessions(t *testing.T) {
	var groups atomic.Int64
	t.Cleanup(func() {
		if t.Logf("%d groups of Txns", groups.Load()); groups.Load() < int64(*simulationCount) {
			t.Error("hardly anything was sent together: this simulation tests nothing of its own")
		}
	})
	simulateAll(t, func(seed uint64) *simulation {
		s := &simulation{seed: seed, work: useMutexes, once: lockOnce, busy: true}
		t.Cleanup(func() { groups.Add(s.groups.Load()) })
		return s
	})
}

func simulateAll(t *testing.T, plan func(seed uint64) *simulation) {
	start := time.Now()
	var grants, forced atomic.Int64
	t.Run("schedules", func(t *testing.T) {
		for i := range *simulationCount {
			seed := *simulationSeed + uint64(i)
			t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
				t.Parallel()
				s := plan(seed)
				s.simulate(t)
				grants.Add(int64(s.oracle.granted))
				forced.Add(int64(s.oracle.forced))
			})
		}
	})
	took := time.Since(start)
	t.Logf("%d schedules in %v (%.0f a minute, %d CPUs), %d grants, %d entries removed by force under their holders",
		*simulationCount, took.Round(time.Millisecond), float64(*simulationCount)/took.Minutes(), runtime.GOMAXPROCS(0), grants.Load(), forced.Load())
	if *simulationCount >= 20 && grants.Load() < int64(*simulationCount) {
		t.Error("hardly anybody was granted anything: this simulation tests nothing")
	}
}

// simulate runs one schedule in a bubble of its own.
func (s *simulation) simulate(t *testing.T) {
	// In real time: a loop that never waits keeps virtual time from passing.
	hang := time.AfterFunc(simHang, func() { panic(fmt.Sprintf("seed %d: the schedule does not end", s.seed)) })
	defer hang.Stop()
	defer func() {
		if p := recover(); p != nil { // goroutines that are left over, mostly
			s.fail("%v", p)
		}
		if *simulationTrace {
			t.Logf("seed %d, trace %x:\n%s", s.seed, s.hash(), s.traceText())
		}
		for _, v := range s.violations {
			test, _, _ := strings.Cut(t.Name(), "/")
			t.Errorf("seed %d: %s\nagain: go test ./tests/robustness -run %s -simulation.seed=%d -simulation.count=1 -simulation.trace -v", s.seed, v, test, s.seed)
		}
	}()
	bubble.Test(t, func(*testing.T) { s.run() })
}
