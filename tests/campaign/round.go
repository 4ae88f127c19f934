//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/tests/internal/raftlog"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A round is a number of processes and the faults that they meet.
type round struct {
	options
	cluster target
	history *history
	dir     string           // of the cluster
	logs    string           // the directory of the processes' logs
	links   []*etcdtest.Link // of each process; nil on the user's etcd
	number  int
	names   []string // of locks and semaphores
	shards  string   // the name of the shards
	stats   oracle.Stats

	healed  time.Duration    // when all faults had ended; until then, when the round began
	workers []*workerProcess // the present ones, by link
	running sync.WaitGroup   // readers of their reports

	diary
}

// diary is what a round has seen so far.
type diary struct {
	mu       sync.Mutex // protects what follows
	events   []event
	faults   []fault                   // in order of their beginnings
	revoked  map[clientv3.LeaseID]bool // by hand
	byHand   map[string]bool           // entries that were deleted by hand, by entryID
	killed   []string                  // processes
	holding  map[string]int            // number of locks, by process
	owning   map[int]string            // which process says that it owns a shard
	failures []string                  // beside what the oracle finds
}

// A fault is one that was made.
type fault struct {
	What string
	oracle.Fault
}

type workerProcess struct {
	*child.Child[event]
	id    string
	link  *etcdtest.Link
	ended chan struct{} // closed when it has ended, and all its reports are read
}

func newRound(
	on target, h *history, dir string, links []*etcdtest.Link, number int, o options,
) *round {
	f := &round{
		options: o, cluster: on, history: h, dir: dir, links: links, number: number,
		logs: filepath.Join(dir, fmt.Sprintf("logs%d", number)), shards: fmt.Sprintf("round%d", number),
		stats: oracle.NewStats(), diary: diary{
			revoked: make(map[clientv3.LeaseID]bool), byHand: make(map[string]bool),
			holding: make(map[string]int), owning: make(map[int]string),
		},
	}
	for i := range 4 {
		f.names = append(f.names, fmt.Sprintf("round%d-%d", number, i))
	}
	return f
}

// run makes one round: faults, then none, and the judgment. What does not come about when all faults have ended is a
// failure of the record, too. It returns no record if ctx ends before that.
func (f *round) run(ctx context.Context) (*recorded, error) {
	if err := os.MkdirAll(f.logs, 0o700); err != nil {
		return nil, err
	}
	from, err := f.history.revision(ctx)
	if err != nil {
		return nil, err
	}
	f.healed = sinceBoot()
	err = f.live(ctx)
	for _, w := range f.workers { // or they would acquire what is not in the history, as it is read below
		w.Kill()
	}
	f.running.Wait()
	if err != nil {
		f.heal()
		f.notCome(err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	to, err := f.history.revision(ctx)
	if err != nil {
		f.failf("%v", err)
		to = f.history.complete()
	}
	log := new(raftlog.Log)
	if !f.cluster.foreign() {
		if log, err = raftlog.Read(f.dir); err != nil {
			return nil, err
		}
	}
	rec := f.record(f.history.between(from, to), log)
	f.history.forget(to)
	return rec, nil
}

// live is the life of the processes. Its error says what did not come about.
func (f *round) live(ctx context.Context) error {
	r := rand.New(rand.NewPCG(f.seed, uint64(f.number)))
	for i := range f.links {
		w, err := f.start(i, 0, r)
		if err != nil {
			return err
		}
		f.workers = append(f.workers, w)
	}
	for _, w := range f.workers { // on a busy machine they begin late
		if err := eventually(ctx, w.id+" has acquired a lock", func() bool { return f.hasHeld(w.id) }); err != nil {
			return err
		}
	}
	nemesis{f}.disturbAll(ctx, r)
	f.heal()
	f.healed = sinceBoot()
	if err := f.tellAll("settle"); err != nil {
		return err
	}
	if err := f.awaitShards(ctx); err != nil {
		return err
	}
	if err := f.tellAll("end"); err != nil {
		return err
	}
	f.running.Wait()
	for _, w := range f.workers {
		f.end(w)
	}
	cli, err := f.cluster.NewClient()
	if err != nil {
		return err
	}
	defer cli.Close()
	return eventually(ctx, "no entry is left", func() bool {
		resp, err := cli.Get(ctx, oracle.Keys, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err == nil && !slices.ContainsFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool {
			return oracle.IsEntry(string(kv.Key)) || oracle.IsMember(string(kv.Key))
		})
	})
}

// tellAll sends all processes a message.
func (f *round) tellAll(message string) error {
	for _, w := range f.workers {
		if err := w.Tell(message); err != nil {
			return child.KillAll(err, w.Child)
		}
	}
	return nil
}

// failf notes what is wrong beside what the oracle finds.
func (f *round) failf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

// notCome notes an error of live. What did not come about in time on a machine that was too busy proves nothing.
func (f *round) notCome(err error) {
	f.history.mu.Lock()
	defer f.history.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	var late *tooLate
	if errors.As(err, &late) && f.tooBusySince(slices.Concat(f.history.starved, f.history.slow)) {
		f.stats.Counts[notJudged]++
		return
	}
	f.failures = append(f.failures, err.Error())
}

// notJudged counts what was to come about when all faults had ended, and did not on a machine that was too busy.
const notJudged = "times when the machine was too busy to recover"

// tooBusySince reports whether the machine was too busy for a quarter of the time since all faults have ended. It is
// given when it was.
func (f *round) tooBusySince(busy []oracle.Fault) bool {
	var since []oracle.Fault
	for _, b := range busy {
		if b.From = max(b.From, f.healed); b.From < b.To {
			since = append(since, b)
		}
	}
	return 4*busyTime(since) > sinceBoot()-f.healed
}

// hasHeld reports whether a process has held a lock.
func (f *round) hasHeld(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.holding[id]
	return ok
}

// start starts the process that uses a link.
func (f *round) start(link, generation int, r *rand.Rand) (*workerProcess, error) {
	w := &workerProcess{id: fmt.Sprintf("round %d process %d.%d", f.number, link, generation), link: f.links[link],
		ended: make(chan struct{})}
	rate := f.clockRate(r)
	endpoints := f.cluster.endpoints
	if w.link != nil {
		endpoints = w.link.Endpoints()
	}
	var err error
	w.Child, err = child.Start[event]("worker", job{ID: w.id, Endpoints: endpoints, Prefix: f.cluster.namespace,
		ClockRate: rate, Names: f.names, Shards: f.shards,
		Log: filepath.Join(f.logs, fmt.Sprintf("process%d.%d.log", link, generation)),
		TTL: time.Duration(2+r.IntN(4)) * time.Second, Seed: r.Uint64(), Goroutines: 2 + r.IntN(4)})
	if err != nil {
		return nil, err
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
	return w, nil
}

// mostDrift is by how much a clock is fast or slow. The drift margin is a tenth of the TTL here, or more, so no rule of
// the judge looks away.
const mostDrift = 0.09

// clockRate draws the rate of a process's clock. Half of the processes have the same.
func (f *round) clockRate(r *rand.Rand) float64 {
	what, rate := "the clock of a process is slow", 1-mostDrift
	switch r.IntN(4) {
	case 0, 1:
		return 1
	case 2:
		what, rate = "the clock of a process is fast", 1+mostDrift
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Counts[faultPrefix+what]++
	return rate
}

// end kills a process, and checks that it has written nothing to stderr: no panic, no data race.
func (f *round) end(w *workerProcess) {
	clean := errors.New("the process wrote to stderr") // what KillAll returns unless it adds something
	if err := child.KillAll(clean, w.Child); err.Error() != clean.Error() {
		f.failf("%s: %v", w.id, err)
	}
}

// heal ends all faults.
func (f *round) heal() {
	if f.cluster.foreign() {
		return
	}
	f.cluster.Heal()
	for _, l := range f.links {
		l.Heal()
	}
}

// entryID identifies an entry, since a session uses its keys again.
func entryID(kv *mvccpb.KeyValue) string { return fmt.Sprint(string(kv.Key), " ", kv.CreateRevision) }

// tooLate is the error of what did not come about in time.
type tooLate struct{ what string }

func (e *tooLate) Error() string { return "timed out waiting until " + e.what }

// eventually polls until ok returns true. Its error is a *tooLate if that took more than a minute, or the cause of ctx.
func eventually(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, &tooLate{what})
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
