package robustness

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
)

const (
	simCloseTimeout = 2 * time.Second
	simAttempt      = time.Second
	simGiveUp       = 500 * time.Millisecond // giveUpWait of internal/queue
	simSlack        = 50 * time.Millisecond  // for calls that wait for several timers
	simEntries      = "holdfast/"
)

// simulation is one schedule. Each part draws from its own random source, so that one
// part does not change the numbers of another.
type simulation struct {
	seed uint64
	work func(s *simulation, c *simClient, goroutine int) // runs until s.stop
	// once acquires and releases; it returns the operation that failed.
	once    func(ctx context.Context, c *simClient, name string) (string, error)
	busy    bool // so many goroutines that Txns are batched
	family  bool // of locks: see drawLock
	permits bool // of semaphores
	minHold bool // half of the holds keep the name taken
	// administered: in half of the schedules holders are asked to let go, and removed.
	administered bool
	srv          *etcdfake.Server
	recorded     func(prefix string) []etcdfake.Change // of a real etcd, instead of srv
	begin        time.Time
	names        []string
	clients      []*simClient
	profile      profile
	stop         atomic.Bool
	oracle       oracle
	batches      atomic.Int64 // batches of Txns that were sent
	troubled     atomic.Int64 // when the last fault ends that no connection is to blame for, in time since begin

	mu         sync.Mutex // protects what follows
	violations []string
	trace      []string
	skips      []time.Duration // when all processes were paused, which the time of a schedule does not count
}

// source returns the random source of one part of the schedule.
func (s *simulation) source(part uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, part)) }

func (s *simulation) now() time.Duration { return time.Since(s.begin) }

// history returns all changes below a prefix.
func (s *simulation) history(prefix string) []etcdfake.Change {
	if s.recorded != nil {
		return s.recorded(prefix)
	}
	return s.srv.History(prefix)
}

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
	if !*simulationTrace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf("%12v %s", s.now(), what))
}

func (s *simulation) run() {
	s.begin = time.Now()
	s.srv = etcdfake.New(&etcdfake.Options{MinTTL: time.Second})
	defer s.srv.Close()
	r := s.source(0)
	s.profile = drawProfile(r)
	names, goroutines := 1+r.IntN(2), 2
	switch {
	case s.busy:
		names, goroutines = 8, 12
	case s.family:
		names, goroutines = s.drawFamily(r)
	case s.permits:
		names, goroutines = s.drawPermits(r)
	}
	for i := range names {
		s.names = append(s.names, fmt.Sprintf("n%d", i))
	}
	for i := range 2 + r.IntN(3) {
		c, err := s.open(i, r)
		if err != nil {
			s.fail("session %d: %v", i, err)
			return
		}
		s.clients = append(s.clients, c)
	}
	length := time.Duration(15+r.IntN(20)) * time.Second
	if s.family && goroutines > 4 {
		length /= 3
	}

	var workers, others sync.WaitGroup
	others.Go(s.watchHolders)
	workers.Go(s.injectFaults)
	workers.Go(s.administer)
	for _, c := range s.clients {
		for i := range goroutines + r.IntN(2) {
			workers.Go(func() { s.work(s, c, i) })
		}
		if s.profile.reopen {
			workers.Go(func() { s.reopen(c) })
		}
	}
	time.Sleep(length)
	s.stop.Store(true)
	if !s.waitFor(&workers, 5*time.Minute) {
		s.fail("a worker has not ended, long after all its contexts have")
		return // closing the server ends it
	}
	for _, c := range s.clients {
		c.link.Heal()
		c.link.Delay(5 * time.Millisecond) // without a delay a loop of requests would stop virtual time
	}
	s.srv.ChangeLeader(0)
	s.log("healed")
	s.checkRecovery(&others)
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

// checkRecovery runs after the workers have ended and all faults are healed. Each client
// must be able to acquire each name. After that no entry may exist, and none may be put
// by a request that arrives late.
func (s *simulation) checkRecovery(others *sync.WaitGroup) {
	time.Sleep(10 * time.Second)
	var recovered sync.WaitGroup
	for _, c := range s.clients {
		recovered.Go(func() {
			for _, name := range s.names {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				if what, err := s.once(ctx, c, name); err != nil {
					s.fail("session %d cannot %s %s after all faults were healed: %v; keys: %v", c.id, what, name, err,
						s.srv.Keys(simEntries))
				}
				cancel()
			}
		})
	}
	recovered.Wait()
	idleSince := s.now()
	time.Sleep(2 * time.Minute)
	s.checkNoEntries("while the sessions are open", idleSince)
	s.oracle.done.Store(true)
	others.Wait()
	s.oracle.checkTaken(s)
	s.oracle.checkRecord(s)
	for _, c := range s.clients {
		if err := s.closeSession(c); err != nil {
			s.fail("closing session %d failed: %v", c.id, err)
		}
	}
	time.Sleep(5 * time.Hour)
	s.checkNoEntries("after all sessions were closed", idleSince)
}

// checkNoEntries checks that no entry exists and that none was put after since.
func (s *simulation) checkNoEntries(when string, since time.Duration) {
	for _, c := range s.srv.History(simEntries) {
		if isEntry(string(c.Kv.Key)) && !c.Deleted && c.At.Sub(s.begin) > since {
			s.fail("%s: %s was put at %v without an acquisition", when, c.Kv.Key, c.At.Sub(s.begin))
		}
	}
	for _, kv := range s.srv.Keys(simEntries) {
		if isEntry(string(kv.Key)) {
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
	for _, line := range s.trace {
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
