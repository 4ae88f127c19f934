package simulation

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/tests/models/leasemodel"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

var (
	firstSeed = flag.Uint64("simulation.seed", 1, "seed of the first schedule")
	count     = flag.Int("simulation.count", 0, "number of schedules of each test, each with the next seed; 0: "+
		"as many as show something in a few seconds")
	crowdSize = flag.Int("simulation.crowd", 24, "goroutines of each session in a crowd")
	trace     = flag.Bool("simulation.trace", false, "print a trace of each schedule")
)

// Sessions and mutexes run against etcdfake in virtual time under faults drawn from a seed.
func TestSimulationOfMutexes(t *testing.T) {
	least := shows{oracle.Granted: 40, asked: 2, modeltrace.Followed: 100, modeltrace.Delayed: 3, leasemodel.Renewed: 100,
		leasemodel.Dropped: 2, leasemodel.Suspended: 5, leasemodel.Expired: 2}
	simulateAll(t, 5, least, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, administered: true}
	})
}

// The same with so many goroutines that the sessions batch their Txns.
func TestSimulationOfBusySessions(t *testing.T) {
	simulateAll(t, 2, shows{oracle.Granted: 30, batches: 10}, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, busy: true, administered: true}
	})
}

// A crowd wants one name, under the same faults: it is served in order, one at a time, and leaves nothing.
func TestSimulationOfACrowd(t *testing.T) {
	simulateAll(t, 2, shows{oracle.Granted: 20}, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, crowd: true, administered: true}
	})
}

// Half of the holds have MinHold.
func TestSimulationOfMinHold(t *testing.T) {
	simulateAll(t, 4, shows{oracle.Granted: 20, oracle.Taken: 6, modeltrace.Followed: 40}, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useMutexes, once: mutexOnce, minHold: true}
	})
}

// What a schedule has, beside what the oracle counts.
const (
	batches  = "batches of Txns"
	asked    = "holds that an administrator has ended"
	attached = "holds that were detached, and went on"
	quietly  = "holds of revoked leases that were watched just before"
)

// shows are the least numbers of what the schedules of a test must have had, or they prove nothing.
type shows map[string]int

// simulateAll runs the schedules: few of them, or as many as the flag says. If these are not fewer, they must have had
// as many, in proportion, of what they are to show. The speed of the machine does not matter: the seeds decide these
// numbers, and the order in which goroutines run that wake at one instant. That order is no test's to decide, so few
// schedules that lack something are followed by more, up to four times as many.
func simulateAll(t *testing.T, few int, least shows, plan func(seed uint64) *simulation) {
	start, schedules := time.Now(), *count
	if schedules == 0 {
		schedules = few
	}
	b := &bench{plan: plan, all: oracle.NewStats()}
	b.run(t, schedules)
	for *count == 0 && b.lacks(least) != "" && b.schedules < 4*few {
		b.run(t, 2)
	}
	for _, kind := range []string{"", modeltrace.Permits} {
		// About one in ten has more ahead of it than the model has, of the permits beside newcomers one in six; how many,
		// the seeds decide.
		if n := b.notFollowed(kind); 4*n > b.all.Counts[kind+modeltrace.Followed] && n > 20 {
			t.Errorf("%d %sentries were not followed in the model", n, kind)
		}
	}
	took := time.Since(start)
	t.Logf("%d schedules in %v (%.0f a minute, %d CPUs), at most %d requests in one\n%v", b.schedules,
		took.Round(time.Millisecond), float64(b.schedules)/took.Minutes(), runtime.GOMAXPROCS(0), b.most, b.all)
	for what := range least {
		least[what] = least[what] * max(schedules, few) / few
	}
	if lacks := b.lacks(least); lacks != "" && schedules >= few {
		t.Errorf("the test proves nothing: %d schedules had %s", b.schedules, lacks)
	}
}

// A bench runs schedules, one for each seed from the first on, and adds up what they have had.
type bench struct {
	plan      func(seed uint64) *simulation
	schedules int

	mu   sync.Mutex // protects what follows
	all  oracle.Stats
	most int64 // requests in one schedule
}

// run runs n more schedules side by side.
func (b *bench) run(t *testing.T, n int) {
	first := *firstSeed + uint64(b.schedules)
	b.schedules += n
	t.Run("schedules", func(t *testing.T) {
		for i := range n {
			seed := first + uint64(i)
			t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
				t.Parallel()
				s := b.plan(seed)
				s.simulate(t)
				b.mu.Lock()
				defer b.mu.Unlock()
				b.all.Add(s.verdict.Stats)
				b.all.Counts[batches] += int(s.batches.Load())
				b.all.Counts[asked] += s.asked
				b.all.Counts[attached] += s.attached
				b.all.Counts[quietly] += s.quietly
				b.most = max(b.most, s.requests.Load())
			})
		}
	})
}

// notFollowed returns how many entries of a kind the model has not followed to their ends.
func (b *bench) notFollowed(kind string) (n int) {
	for what, count := range b.all.Counts {
		if strings.HasPrefix(what, kind+modeltrace.Stopped) {
			n += count
		}
	}
	return n
}

// lacks says of what the schedules have had too few, if of anything.
func (b *bench) lacks(least shows) string {
	for what, want := range least {
		if b.all.Counts[what] < want {
			return fmt.Sprintf("%d %s, want %d", b.all.Counts[what], what, want)
		}
	}
	return ""
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
				"-simulation.crowd=%d -simulation.trace -v", s.seed, v, test, s.seed, *crowdSize)
		}
	}()
	bubble.Test(t, func(*testing.T) { s.run() })
}
