package shard_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

var (
	firstSeed = flag.Uint64("shard.seed", 1, "seed of the first schedule")
	schedules = flag.Int("shard.count", 2, "number of schedules, each with the next seed")
)

// simulation is a schedule in which members join, leave, crash, are paused, and lose their leases. It has a judge of
// its own: no two members trust that they own a shard; when the members have not changed for 5 s, each shard has an
// owner, and loads differ by at most one; when all have left, nothing stands in etcd.
type simulation struct {
	*fleet
	rand   *rand.Rand
	rejoin bool // Options.Rejoin is set, to 1 to 10 s
	lossy  bool // messages are lost, late, and events lag; then no lease is revoked: its holder would be told too late

	names   int // that were given
	running []*running
	stopped map[*running]bool // by SIGSTOP
	log     []string

	mu    sync.Mutex // protects what follows
	held  map[*shard.Shard]*running
	calls uint64
	calm  bool // functions return only when their contexts end
	moved int
}

func TestSimulationOfShards(t *testing.T) {
	for i := range *schedules {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				r := rand.New(rand.NewPCG(seed, 0))
				s := &simulation{
					fleet: newFleet(t, srv, 1+r.IntN(24)), rand: r, lossy: r.IntN(2) == 0, rejoin: seed%2 == 0,
					stopped: make(map[*running]bool), held: make(map[*shard.Shard]*running),
				}
				s.run(seed)
				if t.Failed() {
					t.Logf("repeat: go test ./shard -run TestSimulationOfShards -shard.seed=%d -shard.count=1\n%s", seed,
						strings.Join(s.log, "\n"))
				}
			})
		})
	}
}

func (s *simulation) run(seed uint64) {
	began := time.Now()
	note := func(format string, args ...any) {
		s.log = append(s.log, fmt.Sprintf("%8v ", time.Since(began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
	}
	note("%d shards, lossy %v, rejoin %v", s.n, s.lossy, s.rejoin)
	for range 2 {
		s.join(seed)
	}
	for range 6 {
		what := s.step(seed)
		note("%s", what)
		s.observe(time.Duration(s.rand.IntN(int(3 * kit.TTL / 2))))
		if s.rand.IntN(3) == 0 && !s.lossy {
			s.settle()
			note("settled, %d members", len(s.running))
		}
	}
	s.settle()
	if s.moved < s.n {
		s.t.Errorf("the schedule proves nothing: %d functions were called for %d shards", s.moved, s.n)
	}
	for _, r := range s.running {
		r.stop()
	}
	s.empty()
}

// step does one thing, and says what.
func (s *simulation) step(seed uint64) string {
	var r *running
	if len(s.running) > 0 {
		r = s.running[s.rand.IntN(len(s.running))]
	}
	switch n := s.rand.IntN(10); {
	case r == nil || n < 3 && len(s.running) < 6:
		return "join " + s.join(seed).name
	case n < 5:
		s.drop(r)
		r.leave()
		return "leave " + r.name
	case n == 5:
		s.drop(r)
		r.Link.BlackHole()
		r.leave()
		return "crash " + r.name
	case n == 6 && !s.lossy:
		s.srv.Revoke(r.Sess.Lease())
		s.observe(kit.LockDelay)
		return "revoke the lease of " + r.name
	case n == 7:
		s.stopped[r] = true
		r.Stop()
		s.observe(time.Duration(s.rand.IntN(int(2 * kit.TTL))))
		r.Resume()
		s.plan(r, seed)
		delete(s.stopped, r)
		return "paused " + r.name
	default:
		r.Link.Cut()
		s.observe(time.Duration(s.rand.IntN(int(2 * kit.TTL))))
		r.Heal()
		s.plan(r, seed)
		return "cut off " + r.name
	}
}

// join starts a member. Every other one has the name of one that has gone, perhaps a moment ago.
func (s *simulation) join(seed uint64) *running {
	name := s.rand.IntN(s.names + 1)
	for slices.ContainsFunc(s.running, func(r *running) bool { return r.name == fmt.Sprint("m", name) }) {
		s.names++
		name = s.names
	}
	r := &running{}
	started := s.startWith(kit.Start(s.t, s.srv), fmt.Sprint("m", name), s.function(r, seed), func(o *shard.Options) {
		if s.rejoin {
			o.Rejoin = time.Duration(1+s.rand.IntN(10)) * time.Second
		}
	})
	*r = *started // what function needs of it
	s.plan(started, seed)
	s.running = append(s.running, started)
	return started
}

func (s *simulation) drop(r *running) {
	s.running = slices.DeleteFunc(s.running, func(other *running) bool { return other == r })
}

// plan spoils what the member sends, if the schedule does that.
func (s *simulation) plan(r *running, seed uint64) {
	if !s.lossy {
		return
	}
	draw := rand.New(rand.NewPCG(seed, s.rand.Uint64()))
	r.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
		f.Request, f.Reply = kit.OneWay, kit.OneWay
		switch n := draw.IntN(100); {
		case c.Request == nil && n < 20: // an event
			f.Reply = time.Duration(draw.IntN(int(5 * time.Second)))
		case n < 2:
			f = etcdfake.Fate{LoseRequest: true, Silent: n == 0, Code: codes.Unavailable}
		case n < 4:
			f = etcdfake.Fate{LoseReply: true, Silent: n == 2, Code: codes.Unavailable}
		case n < 5:
			f.Request = time.Duration(draw.IntN(int(time.Minute)))
		}
		return f
	})
}

// function is what members call: until its context ends, and a moment longer; some calls return before.
func (s *simulation) function(of *running, seed uint64) func(context.Context, *shard.Shard) error {
	return func(ctx context.Context, sh *shard.Shard) error {
		s.mu.Lock()
		s.calls++
		s.moved++
		draw := rand.New(rand.NewPCG(seed, s.calls))
		s.held[sh] = of
		calm := s.calm
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.held, sh)
		}()
		if !calm && draw.IntN(10) == 0 {
			time.Sleep(time.Duration(draw.IntN(int(time.Second))))
			return errors.New("broken")
		}
		<-ctx.Done()
		time.Sleep(time.Duration(draw.IntN(int(300 * time.Millisecond))))
		return nil
	}
}

// observe lets time pass, and judges all the while.
func (s *simulation) observe(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		s.trusted()
	}
}

// trusted returns who trusts that it owns which shard: at most one.
func (s *simulation) trusted() map[int]string {
	s.mu.Lock()
	held := maps.Clone(s.held)
	s.mu.Unlock()
	owners := make(map[int]string)
	for sh, r := range held {
		paused := slices.ContainsFunc(slices.Collect(maps.Keys(s.stopped)), func(p *running) bool { return p.Sess == r.Sess })
		if paused || sh.Check() != nil {
			continue
		}
		if other := owners[sh.Index()]; other != "" {
			s.t.Errorf("%s and %s both trust that they own shard %d", other, r.name, sh.Index())
		}
		owners[sh.Index()] = r.name
	}
	return owners
}

// settle heals all connections, waits until the members have not changed for 5 s, and judges.
func (s *simulation) settle() {
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	for _, r := range s.running {
		r.Link.Plan(nil)
	}
	if s.lossy { // late messages may still arrive, and orphans are removed by the next list
		s.observe(2 * time.Minute)
	}
	for last := ""; ; s.observe(settled) {
		var now []string
		for _, kv := range s.srv.Keys(members) {
			now = append(now, fmt.Sprint(string(kv.Key), kv.ModRevision))
		}
		want := len(s.running)
		if s.rejoin {
			want *= 2 // each with its reservation
		}
		if key := strings.Join(now, " "); key == last && len(now) == want {
			break
		} else {
			last = key
		}
	}
	loads := make(map[string]int)
	for _, r := range s.running {
		loads[r.name] = 0
	}
	owners := s.trusted()
	for _, owner := range owners {
		loads[owner]++
	}
	of := slices.Collect(maps.Values(loads))
	if len(of) > 0 && (len(owners) != s.n || len(of) != len(s.running) || slices.Max(of)-slices.Min(of) > 1) {
		s.t.Errorf("members unchanged for 5 s: %d of %d shards are owned: %v", len(owners), s.n, loads)
	}
	s.mu.Lock()
	s.calm = false
	s.mu.Unlock()
	for _, r := range s.running {
		s.plan(r, s.rand.Uint64())
	}
}
