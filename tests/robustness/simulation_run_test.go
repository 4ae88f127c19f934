package robustness

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

const (
	simCloseTimeout = 2 * time.Second
	simAttempt      = time.Second
	simGiveUp       = 500 * time.Millisecond // queue's giveUpWait
	simSlack        = 50 * time.Millisecond  // for what takes several timers
	simEntries      = "holdfast/"
)

// simulation is one schedule. Each part of it draws from a source of its own,
// so that what one part does shifts nothing for the others.
type simulation struct {
	seed    uint64
	work    func(s *simulation, c *simClient, goroutine int)                     // until s.stop
	once    func(ctx context.Context, c *simClient, name string) (string, error) // acquires and releases; says what failed
	busy    bool                                                                 // so much that Txns go together
	srv     *etcdfake.Server
	begin   time.Time
	names   []string
	clients []*simClient
	nerve   profile // how bad it is
	stop    atomic.Bool
	oracle  oracle
	groups  atomic.Int64 // Txns of several that were sent

	mu         sync.Mutex // protects what follows
	violations []string
	trace      []string
}

// simClient is one process: a connection, a session, and its clock.
type simClient struct {
	id     int
	link   *etcdfake.Link
	sess   *session.Session
	rate   float64          // of its clock against the server's
	offset atomic.Int64     // by which its clock has jumped
	calm   atomic.Int64     // when its connection last did harm, in time since begin
	lost   clientv3.LeaseID // the last lease it said was lost; the oracle's
}

// source is the random source of one part of the schedule.
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
	s.nerve = drawProfile(r)
	names, goroutines := 1+r.IntN(2), 2
	if s.busy {
		names, goroutines = 8, 12
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

	var workers, others sync.WaitGroup
	others.Go(s.watchHolders)
	workers.Go(s.disturb)
	for _, c := range s.clients {
		for i := range goroutines + r.IntN(2) {
			workers.Go(func() { s.work(s, c, i) })
		}
	}
	time.Sleep(length)
	s.stop.Store(true)
	if !s.ends(&workers, 5*time.Minute) {
		s.fail("a worker does not end, long after all its contexts have")
		return // the clients close, and so end it
	}
	for _, c := range s.clients {
		c.link.Heal()
		c.link.Delay(5 * time.Millisecond) // or a loop of requests would keep time from passing
	}
	s.srv.ChangeLeader(0)
	s.log("healed")
	s.afterwards(&others)
}

// ends waits for a group, but not for good.
func (s *simulation) ends(group *sync.WaitGroup, most time.Duration) bool {
	done := make(chan struct{})
	go func() { defer close(done); group.Wait() }() // leaves with the group
	select {
	case <-done:
		return true
	case <-time.After(most):
		return false
	}
}

// afterwards: nobody asks for anything any more, all is well, and what is still
// under way arrives. Everybody must be able to lock everything, and then no
// entry may stand, or ever be put again.
func (s *simulation) afterwards(others *sync.WaitGroup) {
	time.Sleep(10 * time.Second)
	for _, c := range s.clients {
		for _, name := range s.names {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			if what, err := s.once(ctx, c, name); err != nil {
				s.fail("session %d cannot %s %s though all is well: %v; keys: %v", c.id, what, name, err, s.srv.Keys(simEntries))
			}
			cancel()
		}
	}
	quiet := s.now()
	time.Sleep(2 * time.Minute)
	s.nothingStands("while the sessions live", quiet)
	s.oracle.over.Store(true)
	others.Wait()
	for _, c := range s.clients {
		start := s.now()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := c.sess.Close(ctx); err != nil {
			s.fail("session %d does not close: %v", c.id, err)
		}
		cancel()
		if took := s.now() - start; took > simCloseTimeout+simSlack {
			s.fail("closing session %d took %v", c.id, took)
		}
	}
	time.Sleep(5 * time.Hour)
	s.nothingStands("after all sessions were closed", quiet)
}

// nothingStands: no entry is there, and none was put since.
func (s *simulation) nothingStands(when string, since time.Duration) {
	for _, c := range s.srv.History(simEntries) {
		if isEntry(string(c.Kv.Key)) && !c.Deleted && c.At.Sub(s.begin) > since {
			s.fail("%s: %s was put at %v and nobody had asked for it", when, c.Kv.Key, c.At.Sub(s.begin))
		}
	}
	for _, kv := range s.srv.Keys(simEntries) {
		if isEntry(string(kv.Key)) {
			s.fail("%s: %s stands and nobody owns it", when, kv.Key)
		}
	}
}

// isEntry tells entries from other keys.
func isEntry(key string) bool { return strings.Contains(key, "/@/") }

func (s *simulation) open(id int, r *rand.Rand) (*simClient, error) {
	c := &simClient{id: id, link: s.srv.Link(), rate: 0.94 + 0.12*r.Float64()}
	begin := time.Now()
	var mu sync.Mutex // protects jitter
	jitter := s.source(100 + uint64(id))
	sess, err := session.New(context.Background(), c.link.Client(), &session.Options{
		TTL:          time.Duration(1+r.IntN(5)) * time.Second,
		CloseTimeout: simCloseTimeout,
		Clock: func() time.Duration {
			return time.Duration(float64(time.Since(begin))*c.rate) + time.Duration(c.offset.Load())
		},
		Retry: backoff.Policy{Attempt: simAttempt, Rand: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return jitter.Float64()
		}},
		Logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1})),
	})
	c.sess = sess
	return c, err
}

// hash is one number for all that happened in the store. Lease and nonce are
// left out of the keys: the nonce is not drawn from the seed.
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
