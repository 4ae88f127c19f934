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

var (
	firstSeed = flag.Uint64("simulation.seed", 1, "seed of the first schedule")
	count     = flag.Int("simulation.count", 0, "number of schedules of each test, each with the next seed; 0: "+
		"as many as show something in a few seconds")
	trace = flag.Bool("simulation.trace", false, "print a trace of each schedule")
)

// Sessions and mutexes run against etcdfake in virtual time under faults drawn from a seed.
func TestSimulationOfMutexes(t *testing.T) {
	simulateAll(t, 8, shows{oracle.Granted: 60, asked: 4}, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, administered: true}
	})
}

// The same with so many goroutines that the sessions batch their Txns.
func TestSimulationOfBusySessions(t *testing.T) {
	simulateAll(t, 2, shows{oracle.Granted: 30, batches: 10}, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, busy: true, administered: true}
	})
}

// Half of the holds have MinHold.
func TestSimulationOfMinHold(t *testing.T) {
	simulateAll(t, 6, shows{oracle.Granted: 30, oracle.Taken: 10}, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, minHold: true}
	})
}

// What a schedule has, beside what the oracle counts.
const (
	batches = "batches of Txns"
	asked   = "holds that an administrator has ended"
	quietly = "holds of revoked leases that were watched just before"
)

// shows are the least numbers of what the schedules of a test must have had, or they prove nothing.
type shows map[string]int

// simulateAll runs the schedules: few of them, or as many as the flag says. If these are not fewer, they must have had
// as many, in proportion, of what they are to show. The speed of the machine does not matter: the seeds decide these
// numbers, and the order in which goroutines run that wake at one instant.
func simulateAll(t *testing.T, few int, least shows, plan func(seed uint64) *simulation) {
	start, schedules := time.Now(), *count
	if schedules == 0 {
		schedules = few
	}
	var mu sync.Mutex // protects what follows
	all, most := oracle.NewStats(), int64(0)
	t.Run("schedules", func(t *testing.T) {
		for i := range schedules {
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
				all.Counts[quietly] += s.quietly
				most = max(most, s.requests.Load())
			})
		}
	})
	took := time.Since(start)
	t.Logf("%d schedules in %v (%.0f a minute, %d CPUs), at most %d requests in one\n%v", schedules,
		took.Round(time.Millisecond), float64(schedules)/took.Minutes(), runtime.GOMAXPROCS(0), most, all)
	for what, n := range least {
		if want := n * schedules / few; schedules >= few && all.Counts[what] < want {
			t.Errorf("the test proves nothing: %d schedules had %d %s, want %d", schedules, all.Counts[what], what, want)
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
