package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/models/leasemodel"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

const (
	closeTimeout = 2 * time.Second
	attempt      = requests.Patience      // of a write: the client's KV was replaced
	lockDelay    = 2 * time.Second        // the default
	giveUp       = 500 * time.Millisecond // giveUpWait of internal/queue
	slack        = 50 * time.Millisecond  // for calls that wait for several timers
)

// simulation is one schedule. Each part draws from its own random source, so that one
// part does not change the numbers of another.
type simulation struct {
	seed uint64
	work func(s *simulation, p *process, goroutine int) // runs until s.stop
	// once acquires and releases; it returns the operation that failed.
	once      func(ctx context.Context, p *process, name string) (string, error)
	busy      bool // so many goroutines that Txns are batched
	crowd     bool // crowdSize goroutines of each session want one name
	family    bool // of locks: see family.Draw
	permits   bool // of semaphores
	minHold   bool // half of the holds keep the name taken
	moves     bool // holds of one name are detached, and attached elsewhere: see detach_test.go
	newcomers bool // others come as soon as a holder was removed by hand: see newcomer_test.go
	// administered: in half of the schedules holders are asked to let go, and removed.
	administered bool
	kind         holdfast.Kind // of the names; empty: locks
	restful      bool          // few who hold for long, and a network that works: see useAtRest
	sick         atomic.Int32  // so many members are
	quiet        bool          // sessions watch several members, of which few are sick: see members_test.go
	srv          *etcdfake.Server
	begin        time.Time
	names        []string
	processes    []*process
	profile      profile
	stop         atomic.Bool
	batches      atomic.Int64 // of Txns that were sent
	requests     atomic.Int64 // that were sent
	ended        atomic.Bool  // all work has ended
	verdict      oracle.Verdict

	renewalsMu sync.Mutex // protects renewals; it is locked under the mutex of a lease
	renewals   []leasemodel.Said

	mu         sync.Mutex // protects what follows
	record     oracle.Record
	holds      []*hold
	asked      int // holds that an administrator has ended
	attached   int // holds that were detached, and went on
	quietly    int // holds of revoked leases that were watched just before
	violations []string
	steps      []lease.Step
	unrevoked  []clientv3.LeaseID // of sessions that could not be closed as they should
	unsure     map[string]bool    // names whose limits may change at any time
	lines      []string           // of the trace
	clients    []*clientv3.Client
}

// source returns the random source of one part of the schedule.
func (s *simulation) source(part uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, part)) }

func (s *simulation) now() time.Duration { return time.Since(s.begin) }

func (s *simulation) fail(format string, args ...any) {
	text := fmt.Sprintf("at %v: ", s.now()) + fmt.Sprintf(format, args...)
	s.log("VIOLATION " + text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.violations) < 5 {
		s.violations = append(s.violations, text)
	}
}

func (s *simulation) log(what string) {
	if !*trace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf("%12v %s", s.now(), what))
}

func (s *simulation) run() {
	s.begin, s.record.Leases = time.Now(), make(map[clientv3.LeaseID]oracle.Lease)
	s.srv = etcdfake.New(etcdfake.Options{MinTTL: time.Second, Members: s.drawMembers()})
	defer s.srv.Close()
	defer s.closeClients()
	r := s.source(0)
	s.profile = drawProfile(r)
	names, goroutines := 1+r.IntN(2), 2
	switch {
	case s.busy:
		names, goroutines = 8, 12
	case s.crowd:
		names, goroutines = 1, *crowdSize
	case s.family:
		names, goroutines = s.drawFamily(r)
	case s.permits:
		names, goroutines = s.drawPermits(r)
	case s.restful:
		names, goroutines = s.drawRest(r)
	}
	for i := range names {
		s.names = append(s.names, fmt.Sprintf("n%d", i))
	}
	for i := range 2 + r.IntN(3) {
		p, err := s.start(i, r)
		if err != nil {
			s.fail("session %d: %v", i, err)
			return
		}
		s.processes = append(s.processes, p)
	}
	length := time.Duration(15+r.IntN(20)) * time.Second
	if s.family && goroutines > 4 {
		length /= 3
	}

	var workers, watcher sync.WaitGroup
	watcher.Go(s.watchHolds)
	if s.restful {
		workers.Go(s.disturbRest)
	} else {
		workers.Go(s.injectFaults)
	}
	if s.quiet {
		workers.Go(s.makeMembersSick)
	}
	workers.Go(s.administer)
	if s.newcomers {
		workers.Go(s.meetNewcomers)
	}
	for _, p := range s.processes {
		for i := range goroutines + r.IntN(2) {
			workers.Go(func() { s.work(s, p, i) })
		}
		if s.profile.reopen {
			workers.Go(func() { s.reopen(p) })
		}
	}
	time.Sleep(length)
	s.stop.Store(true)
	if !s.waitFor(&workers, 5*time.Minute) {
		s.fail("a worker has not ended, long after all its contexts have")
		return // closing the server ends it
	}
	s.ended.Store(true)
	watcher.Wait()
	for _, m := range s.srv.Members() {
		m.Resume()
		m.Lag(0)
	}
	for _, p := range s.processes {
		p.link.Heal()
		p.link.Delay(5 * time.Millisecond) // without a delay a loop of requests would stop virtual time
		p.link.Plan(s.healthy)
	}
	s.srv.ChangeLeader(0)
	s.log("healed")
	s.checkRecovery()
	s.judge()
}

// waitFor waits for a group and reports whether it was done within the limit.
func (s *simulation) waitFor(group *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() { defer close(done); group.Wait() }() // ends with the group
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// checkRecovery runs after the workers have ended and all faults are healed. Each process must be able to acquire each
// name. After that no entry may exist, and none may be put by a request that arrives late.
func (s *simulation) checkRecovery() {
	time.Sleep(10 * time.Second)
	var recovered sync.WaitGroup
	for _, p := range s.processes {
		recovered.Go(func() {
			for _, name := range s.names {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				if what, err := s.once(ctx, p, name); err != nil {
					s.fail("session %d cannot %s %s after all faults were healed: %v; keys: %v", p.id, what, name, err,
						s.srv.Keys(oracle.Keys))
				}
				cancel()
			}
		})
	}
	recovered.Wait()
	idleSince := s.now()
	time.Sleep(5 * time.Second) // for what is still to be removed
	before := make([]int, len(s.processes))
	for i, p := range s.processes {
		before[i] = p.sent()
	}
	idle := s.idle()
	time.Sleep(idle)
	for i, p := range s.processes {
		if n := p.sent() - before[i]; n > mostIdle*int(idle/time.Second) {
			s.fail("session %d: %d requests were sent in %v in which it was idle", p.id, n, idle)
		}
	}
	s.checkNoEntries("while the sessions are open", idleSince)
	s.checkEnded()
	for _, p := range s.processes {
		if err := s.closeSession(p); err != nil {
			s.fail("closing session %d failed: %v", p.id, err)
		}
	}
	time.Sleep(5 * time.Hour)
	s.checkNoEntries("after all sessions were closed", idleSince)
}

// mostIdle is how many requests a second an idle session may send: several times its renewals, of which each is proved.
// A loop that sends one after the other sends a hundred.
const mostIdle = 30

// idle draws how long the sessions stay open when all is done. Two minutes, in which most late requests arrive, cost as
// much as all before.
func (s *simulation) idle() time.Duration {
	if s.source(6).IntN(4) == 0 {
		return 2 * time.Minute
	}
	return 10 * time.Second
}

// checkNoEntries checks that no entry exists and that none was put after since. A put that arrives late is carried out
// while its lease lives, if the session could not revoke that; each new leader gives the lease its full TTL.
func (s *simulation) checkNoEntries(when string, since time.Duration) {
	s.mu.Lock()
	unrevoked := s.unrevoked
	s.mu.Unlock()
	for _, c := range s.srv.History(oracle.Keys) {
		lease, _ := layout.LeaseOf(string(c.Kv.Key))
		if oracle.IsEntry(string(c.Kv.Key)) && !c.Deleted && c.At.Sub(s.begin) > since && !slices.Contains(unrevoked, lease) {
			s.fail("%s: %s was put at %v without an acquisition", when, c.Kv.Key, c.At.Sub(s.begin))
		}
	}
	for _, kv := range s.srv.Keys(oracle.Keys) {
		if oracle.IsEntry(string(kv.Key)) {
			s.fail("%s: %s was left behind", when, kv.Key)
		}
	}
}

// hash returns a hash of the history of the store. It leaves lease and nonce out of the
// keys, because the nonce is not drawn from the seed.
func (s *simulation) hash() uint64 {
	h := fnv.New64a()
	for _, c := range s.srv.History("") {
		fmt.Fprintln(h, c.At.Sub(s.begin), c.Revision, c.Cause, c.Deleted, strings.Count(string(c.Kv.Key), "/"))
	}
	return h.Sum64()
}

func (s *simulation) traceText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, line := range s.lines {
		b.WriteString(line + "\n")
	}
	b.WriteString("the store:\n")
	for _, c := range s.srv.History("") {
		verb := "put"
		if c.Deleted {
			verb = [...]string{"delete", "expire", "revoke", "force"}[c.Cause]
		}
		fmt.Fprintf(&b, "%12v rev %d %s %s\n", c.At.Sub(s.begin), c.Revision, verb, c.Kv.Key)
	}
	return b.String()
}

// mutexOnce and anyOnce acquire and release a name.
func mutexOnce(ctx context.Context, p *process, name string) (string, error) {
	return family.MutexOnce(ctx, p.session(), name)
}

func anyOnce(ctx context.Context, p *process, name string) (string, error) {
	return family.Once(ctx, p.session(), name)
}
