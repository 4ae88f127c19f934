//go:build linux

package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/tests/internal/raftlog"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A round is a number of processes and the faults that they meet.
type round struct {
	cluster *etcdtest.Cluster
	history *history
	dir     string           // of the cluster
	links   []*etcdtest.Link // of each process
	number  int
	names   []string // of locks and semaphores
	shards  string   // the name of the shards
	length  time.Duration
	stats   oracle.Stats

	workers []*workerProcess // the present ones, by link
	running sync.WaitGroup   // readers of their reports

	mu      sync.Mutex // protects what follows
	events  []event
	faults  []fault                   // in order of their beginnings
	revoked map[clientv3.LeaseID]bool // by hand
	byHand  map[string]bool           // entries that were deleted by hand, by entryID
	killed  []string                  // processes
	holding map[string]int            // number of locks, by process
	owning  map[int]string            // which process says that it owns a shard
}

type fault struct {
	what string
	oracle.Fault
}

type workerProcess struct {
	*child.Child[event]
	id    string
	link  *etcdtest.Link
	ended chan struct{} // closed when it has ended, and all its reports are read
}

// run makes one round: faults, then none, and the judgment.
func (f *round) run(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, uint64(f.number)))
	f.workers, f.events, f.faults, f.killed = nil, nil, nil, nil
	f.revoked, f.byHand, f.holding = make(map[clientv3.LeaseID]bool), make(map[string]bool), make(map[string]int)
	f.owning = make(map[int]string)
	f.names, f.shards = nil, fmt.Sprintf("round%d", f.number)
	for i := range 4 {
		f.names = append(f.names, fmt.Sprintf("round%d-%d", f.number, i))
	}
	from := f.history.revision(t)
	defer func() {
		for _, w := range f.workers {
			w.Kill()
		}
	}()
	for i := range f.links {
		f.workers = append(f.workers, f.start(i, 0, r))
	}
	for _, w := range f.workers { // on a busy machine they begin late
		testkit.Eventually(t, w.id+" has acquired a lock", func() bool { return f.hasHeld(w.id) })
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
		testkit.MustSucceed(t, w.Tell("settle"))
	}
	f.awaitShards(t)
	for _, w := range f.workers {
		testkit.MustSucceed(t, w.Tell("end"))
	}
	f.running.Wait()
	for _, w := range f.workers {
		w.end(t)
	}
	cli := f.cluster.Client(t)
	testkit.Eventually(t, "no entry is left", func() bool {
		resp, err := cli.Get(t.Context(), oracle.Keys, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err == nil && !slices.ContainsFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool {
			return oracle.IsEntry(string(kv.Key)) || oracle.IsMember(string(kv.Key))
		})
	})
	for _, d := range f.faults {
		f.stats.Counts["fault: "+d.what]++
	}
	f.stats.Counts["rounds"]++
	to := f.history.revision(t)
	log, err := raftlog.Read(f.dir)
	testkit.MustSucceed(t, err)
	f.judge(t, f.history.between(from, to), log)
}

// hasHeld reports whether a process has held a lock.
func (f *round) hasHeld(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.holding[id]
	return ok
}

// start starts the process that uses a link.
func (f *round) start(link, generation int, r *rand.Rand) *workerProcess {
	w := &workerProcess{id: fmt.Sprintf("round %d process %d.%d", f.number, link, generation), link: f.links[link],
		ended: make(chan struct{})}
	var err error
	w.Child, err = child.Start[event]("worker", job{ID: w.id, Endpoints: w.link.Endpoints(),
		Names: f.names, Shards: f.shards,
		TTL: time.Duration(2+r.IntN(4)) * time.Second, Seed: r.Uint64(), Goroutines: 2 + r.IntN(4)})
	if err != nil {
		panic(err)
	}
	f.running.Go(func() {
		defer close(w.ended)
		for {
			ev, err := w.Await(context.Background(), reports) // until the process ends
			if err != nil {
				return
			}
			f.mu.Lock()
			f.events = append(f.events, ev)
			switch {
			case ev.Kind == shardKind:
				f.own(w.id, ev)
			case ev.What == held:
				f.holding[w.id]++
			case ev.What == ended:
				f.holding[w.id]--
			}
			f.mu.Unlock()
		}
	})
	return w
}

// end kills the process, and checks that it has written nothing to stderr: no panic, no data race.
func (w *workerProcess) end(t *testing.T) {
	unexpected := errors.New("the process wrote to stderr")
	if err := child.KillAll(unexpected, w.Child); err != unexpected {
		t.Errorf("%s: %v", w.id, err)
	}
}

// heal ends all faults.
func (f *round) heal() {
	f.cluster.Heal()
	for _, l := range f.links {
		l.Heal()
	}
}

// entryID identifies an entry, since a session uses its keys again.
func entryID(kv *mvccpb.KeyValue) string { return fmt.Sprint(string(kv.Key), " ", kv.CreateRevision) }
