//go:build linux

package robustness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/child"
)

// Processes acquire locks of all kinds over overlapping names on a real cluster, while members and processes are
// stopped and killed, connections fail, commits are slow, and an administrator interferes. What they observe is judged
// by etcd's own history, with the oracle of the simulation.
// For ten minutes of it, and a trace of each round that fails:
//
//	go test ./tests/robustness -run TestLockFamilyOnARealCluster -campaign -simulation.trace -v
//
// With one rule taken out by hand, -full failed: no lock delay; a reader that passes writers; a permit more than the
// limit; a lease that is trusted for four seconds longer.
func TestLockFamilyOnARealClusterUnderFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true, DefaultTicks: true, Dir: dir})
	f := &familyRound{cluster: cluster, record: recordFamily(t, cluster), dir: dir,
		stats: familyStats{counts: make(map[string]int), worst: make(map[string]time.Duration)}}
	for range long(5, 4, 2) {
		f.links = append(f.links, cluster.Link(t))
	}
	for round := range long(12, 2, 1) {
		f.number, f.length = round, seconds(long(40, 20, 4))
		f.run(t)
	}
	for _, what := range slices.Sorted(maps.Keys(f.stats.counts)) {
		t.Logf("%6d %s", f.stats.counts[what], what)
	}
	for _, what := range slices.Sorted(maps.Keys(f.stats.worst)) {
		t.Logf("%10v %s", f.stats.worst[what].Round(time.Millisecond), what)
	}
	if f.stats.granted == 0 {
		t.Error("the test proves nothing: no lock was acquired")
	}
}

// A familyRound is a number of processes and the faults that they meet.
type familyRound struct {
	cluster *etcdtest.Cluster
	record  *familyRecord
	dir     string           // of the cluster
	links   []*etcdtest.Link // of each process
	number  int
	names   []string // of locks and semaphores
	length  time.Duration
	stats   familyStats

	workers []*familyChild // the present ones, by link
	running sync.WaitGroup // readers of their reports

	mu           sync.Mutex // protects what follows
	events       []familyEvent
	disturbances []disturbance             // in order of their beginnings
	revoked      map[clientv3.LeaseID]bool // by hand
	byHand       map[string]bool           // entries that were deleted by hand, by entryID
	killed       []string                  // processes
	holding      map[string]int            // number of locks, by process
	failed       []string
}

// A disturbance is a fault of one process or its connection, or of the cluster.
type disturbance struct {
	what     string
	process  string // the processes that use one link; "" is the cluster
	from, to time.Duration
}

type familyChild struct {
	*child.Child[familyEvent]
	id    string
	link  *etcdtest.Link
	ended chan struct{} // closed when it has ended, and all its reports are read
}

// run makes one round: faults, then none, and the judgement.
func (f *familyRound) run(t *testing.T) {
	r := rand.New(rand.NewPCG(*simulationSeed, uint64(f.number)))
	f.workers, f.events, f.disturbances, f.killed, f.failed = nil, nil, nil, nil, nil
	f.revoked, f.byHand, f.holding = make(map[clientv3.LeaseID]bool), make(map[string]bool), make(map[string]int)
	f.names = nil
	for i := range 4 {
		f.names = append(f.names, fmt.Sprintf("round%d-%d", f.number, i))
	}
	from := f.record.revision(t)
	defer func() {
		for _, w := range f.workers {
			w.Kill()
		}
	}()
	for i := range f.links {
		f.workers = append(f.workers, f.start(i, 0, r))
	}
	ctx, cancel := context.WithTimeout(t.Context(), f.length)
	defer cancel()
	var lanes sync.WaitGroup
	lane := func(do func(context.Context, *rand.Rand)) {
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		lanes.Go(func() { f.disturb(ctx, r, do) })
	}
	lane(f.disturbCluster)
	if f.number%2 == 0 {
		lane(f.interfere)
	}
	if f.number%3 != 1 {
		for i := range 2 {
			lane(func(ctx context.Context, r *rand.Rand) { f.disturbProcess(ctx, t, r, i) })
		}
	}
	lanes.Wait()
	f.heal()
	for _, w := range f.workers {
		mustSucceed(t, w.Tell("end"))
	}
	f.running.Wait()
	for _, w := range f.workers {
		w.end(t)
	}
	cli := f.cluster.Client(t)
	await(t, "no entry is left", func() bool {
		resp, err := cli.Get(t.Context(), simEntries, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err == nil && !slices.ContainsFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool { return isEntry(string(kv.Key)) })
	})
	for _, d := range f.disturbances {
		f.stats.count("fault: " + d.what)
	}
	f.stats.count("rounds")
	f.judge(t, from, f.record.revision(t), readRaftLog(t, f.dir))
}

// start starts the process that uses a link.
func (f *familyRound) start(link, generation int, r *rand.Rand) *familyChild {
	w := &familyChild{id: fmt.Sprintf("round %d process %d.%d", f.number, link, generation), link: f.links[link],
		ended: make(chan struct{})}
	var err error
	w.Child, err = child.Start[familyEvent](familyWorker, familyJob{ID: w.id, Endpoints: w.link.Endpoints(),
		Names: f.names, TTL: time.Duration(2+r.IntN(4)) * time.Second, Seed: r.Uint64(), Goroutines: 2 + r.IntN(4)})
	if err != nil {
		panic(err)
	}
	f.running.Go(func() {
		defer close(w.ended)
		for {
			ev, err := w.Await(context.Background(), "family") // until the process ends
			if err != nil {
				return
			}
			f.mu.Lock()
			f.events = append(f.events, ev)
			switch ev.What {
			case "held":
				f.holding[w.id]++
			case "ended":
				f.holding[w.id]--
			}
			f.mu.Unlock()
		}
	})
	return w
}

// end kills the process, and checks that it has written nothing to stderr: no panic, no data race.
func (w *familyChild) end(t *testing.T) {
	unexpected := errors.New("the process wrote to stderr")
	if err := child.KillAll(unexpected, w.Child); err != unexpected {
		t.Errorf("%s: %v", w.id, err)
	}
}

// heal ends all faults.
func (f *familyRound) heal() {
	f.cluster.Heal()
	for _, l := range f.links {
		l.Heal()
	}
}

// fail records a violation.
func (f *familyRound) fail(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, fmt.Sprintf(format, args...))
}

// familyStats are what all rounds have had.
type familyStats struct {
	granted int
	counts  map[string]int
	worst   map[string]time.Duration
}

func (s *familyStats) count(what string) { s.counts[what]++ }

// most keeps the longest duration.
func (s *familyStats) most(what string, d time.Duration) {
	if was, ok := s.worst[what]; !ok || d > was {
		s.worst[what] = d
	}
}

// least keeps the shortest duration.
func (s *familyStats) least(what string, d time.Duration) {
	if was, ok := s.worst[what]; !ok || d < was {
		s.worst[what] = d
	}
}

// entryID identifies an entry, since a session uses its keys again.
func entryID(kv *mvccpb.KeyValue) string { return fmt.Sprint(string(kv.Key), " ", kv.CreateRevision) }
