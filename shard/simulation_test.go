package shard_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/shard"
)

var (
	firstSeed = flag.Uint64("shard.seed", 1, "seed of the first schedule")
	schedules = flag.Int("shard.count", 2, "number of schedules, each with the next seed")
)

// lag is by how much a view may be late.
const lag = 8 * time.Second

// simulation is a schedule in which members join, leave, crash, are paused, lose their leases and change what they
// take, and an operator drains them and pins shards, while messages of others are lost, late, or do not pass. A judge
// compares it with etcd's history. A member that joins beside one that is well and takes shards owns nothing within
// Settle. When all troubles have ended and the members have not changed for Settle and 5 s, each shard is owned by the
// member that it is assigned to; when all have left, nothing stands in etcd.
type simulation struct {
	*fleet
	judge  *judge
	seed   uint64
	rand   *rand.Rand
	rejoin bool // Options.Rejoin is set, to 1 to 10 s
	settle time.Duration
	began  time.Time
	log    []string

	names   int // that were given
	used    map[int]bool
	adm     *admin.Client
	drained []string        // members
	out     map[string]bool // the names that were ever drained or out of service
	running []*actor        // in the order in which they joined
	crashed []*actor
	lasting time.Time // until then what has happened may delay members

	calls uint64 // protected by judge.mu
	calm  bool   // likewise: functions return only when their contexts end
}

func TestSimulationOfShards(t *testing.T) {
	all := make(map[string]int)
	for i := range *schedules {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				r := rand.New(rand.NewPCG(seed, 0))
				s := &simulation{
					fleet: newFleet(t, srv, 1+r.IntN(16)), judge: newJudge(t, srv), seed: seed, rand: r, rejoin: seed%2 == 0,
					settle: [...]time.Duration{-1, time.Second, settle}[seed%3], began: time.Now(),
					used: make(map[int]bool), adm: admin.New(srv.Client(t), admin.Options{}), out: make(map[string]bool),
				}
				s.run()
				for what, n := range s.judge.counts {
					all[what] += n
				}
				if t.Failed() {
					t.Logf("repeat: go test ./shard -run TestSimulationOfShards -shard.seed=%d -shard.count=1\n%s", seed,
						strings.Join(s.log, "\n"))
				}
			})
		})
	}
	t.Logf("%d schedules", *schedules)
	for _, what := range slices.Sorted(maps.Keys(all)) {
		t.Logf("%8d %s", all[what], what)
	}
	if all[done] == 0 || all[refused] == 0 || all[refusedThere] == 0 {
		t.Errorf("the schedules prove nothing: %v", all)
	}
}

func (s *simulation) note(format string, args ...any) {
	at := time.Since(s.began).Round(time.Millisecond)
	s.log = append(s.log, fmt.Sprintf("%10v ", at)+fmt.Sprintf(format, args...))
}

func (s *simulation) run() {
	s.note("%d shards, rejoin %v, settle %v", s.n, s.rejoin, s.settle)
	for range 2 {
		s.join()
	}
	for range 8 {
		s.note("%s", s.step())
		s.observe(s.upTo(kit.TTL))
		if s.rand.IntN(6) == 0 {
			s.rest()
		}
	}
	s.rest()
	for _, name := range s.drained {
		s.undrain(name)
	}
	for _, a := range s.running {
		a.stop()
	}
	s.empty()
	for _, a := range s.crashed { // as if they had only been paused: they find that they have lost everything
		a.leave()
		s.relieve(a)
		a.stop()
	}
	s.empty()
	s.judge.history()
}

func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.rand.Int64N(int64(d)))
}

// step does one thing, and says what.
func (s *simulation) step() string {
	well := slices.DeleteFunc(slices.Clone(s.running), func(a *actor) bool { return a.trouble != "" })
	n := s.rand.IntN(26)
	if len(well) == 0 || n < 4 && len(s.running) < 6 {
		return "join " + s.join().name
	}
	a := well[s.rand.IntN(len(well))]
	switch {
	case n >= 20:
		return s.steer(a)
	case n < 6:
		a = s.running[s.rand.IntN(len(s.running))] // whatever trouble it has
		if !a.stopped {
			s.drop(a)
			s.shake(a)
			a.leave()
		}
		return "leave " + a.name + " " + a.trouble
	case n == 6:
		s.drop(a)
		s.crashed = append(s.crashed, a)
		s.trouble(a, crashed, a.Stop)
		return "crash " + a.name
	case n < 10:
		if n > 7 {
			a = s.running[s.rand.IntN(len(s.running))]
		}
		s.judge.mu.Lock()
		s.judge.revoked[a.Sess.Lease()] = time.Now()
		s.judge.mu.Unlock()
		s.shake(a)
		s.srv.Revoke(a.Sess.Lease())
		return "revoke the lease of " + a.name + " " + a.trouble
	case n == 10:
		deposed := s.upTo(kit.TTL)
		for _, a := range s.running {
			s.shake(a)
		}
		s.late(deposed + kit.TTL/2)
		s.srv.ChangeLeader(deposed)
		return "another leader"
	case n < 13:
		s.trouble(a, paused, a.Stop)
	case n == 13:
		s.trouble(a, "cut off", a.Link.Cut)
	case n == 14:
		s.trouble(a, "hears no replies", a.Link.BlackHoleReplies)
	case n < 17:
		s.trouble(a, lateView, func() { s.plan(a, true, false) })
	default:
		s.trouble(a, lostMessages, func() { s.plan(a, true, true) })
	}
	return a.name + ": " + a.trouble + " until " + a.until.Sub(s.began).Round(time.Millisecond).String()
}

// steer has a member take more or less, or an operator drain it or pin a shard to it, and says what.
func (s *simulation) steer(a *actor) string {
	ended, cancel := context.WithCancel(context.Background()) // the member goes on without it
	cancel()
	switch n := s.rand.IntN(7); {
	case n < 3:
		c := shard.Capacity{Weight: 1 + s.rand.IntN(3), OutOfService: n == 0, MaxShards: s.rand.IntN(2) * s.rand.IntN(8)}
		if c.OutOfService {
			s.takeOut(a.name)
		}
		_ = a.shards.Update(ended, c) // a.shards may not have joined yet
		return fmt.Sprintf("%s takes %+v", a.name, c)
	case n < 5:
		d, index := time.Duration(1+s.rand.IntN(60))*time.Second, s.rand.IntN(s.n)
		_, err := s.adm.MoveShard(context.Background(), "orders", index, a.name, d)
		return fmt.Sprintf("pin %d to %s for %v: %v", index, a.name, d, err)
	case len(s.drained) == 0:
		s.takeOut(a.name)
		err := s.adm.DrainMember(context.Background(), "orders", a.name)
		if err == nil {
			s.drained = append(s.drained, a.name)
		}
		return fmt.Sprintf("drain %s: %v", a.name, err)
	default:
		name := s.drained[0]
		s.undrain(name)
		s.drained = s.drained[1:]
		return "undrain " + name
	}
}

// takeOut notes that a name takes no shards, perhaps for long: others may not have to wait beside it.
func (s *simulation) takeOut(name string) {
	s.out[name] = true
	for _, a := range s.running {
		if a.name == name {
			s.shake(a)
		}
	}
}

func (s *simulation) undrain(name string) {
	if _, err := s.adm.UndrainMember(context.Background(), "orders", name); err != nil {
		s.t.Errorf("undrain %s: %v", name, err)
	}
}

// late notes that what has happened may delay members for a while.
func (s *simulation) late(d time.Duration) {
	if until := time.Now().Add(d); until.After(s.lasting) {
		s.lasting = until
	}
}

// join starts a member. Every other one has the name of one that has gone, perhaps a moment ago.
func (s *simulation) join() *actor {
	name := s.rand.IntN(s.names + 1)
	for slices.ContainsFunc(s.running, func(a *actor) bool { return a.name == fmt.Sprint("m", name) }) {
		s.names++
		name = s.names
	}
	a := &actor{name: fmt.Sprint("m", name), joined: time.Now()}
	if !s.used[name] {
		a.beside = s.steady()
	}
	s.used[name] = true
	a.running = s.startWith(kit.Start(s.t, s.srv), a.name, s.function(a), func(o *shard.Options) {
		o.Settle = s.settle
		if s.rejoin {
			o.Rejoin = time.Duration(1+s.rand.IntN(10)) * time.Second
		}
	})
	s.plan(a, false, false)
	s.running = append(s.running, a)
	return a
}

// steady returns a member that has settled, takes shards, and that nothing happens to now, or nil.
func (s *simulation) steady() *actor {
	for _, a := range s.running {
		last := slices.MaxFunc([]time.Time{a.joined, a.calmSince, a.shaken, s.lasting}, time.Time.Compare)
		if a.trouble == "" && !s.out[a.name] && time.Since(last) > settled {
			return a
		}
	}
	return nil
}

func (s *simulation) drop(a *actor) {
	s.running = slices.DeleteFunc(s.running, func(other *actor) bool { return other == a })
}

// observe lets time pass, ends troubles, and judges all the while, not only when holds begin.
func (s *simulation) observe(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		for _, a := range s.running {
			if a.trouble != "" && time.Now().After(a.until) {
				s.relieve(a)
			}
		}
		s.judge.trusted()
	}
}

// rest ends all troubles, waits until the members have not changed for 5 s, and judges.
func (s *simulation) rest() {
	s.setCalm(true)
	for _, a := range s.running {
		s.relieve(a)
	}
	s.observe(time.Until(s.lasting))
	for last, tries := "", 0; ; s.observe(settled) {
		var now []string
		there := 0 // members and reservations
		for _, kv := range s.srv.Keys(members) {
			now = append(now, fmt.Sprint(string(kv.Key), kv.ModRevision))
			at := strings.TrimPrefix(string(kv.Key), members)
			if !strings.HasPrefix(at, "out-") && !strings.HasPrefix(at, "pin-") {
				there++
			}
		}
		want := len(s.running)
		if s.rejoin {
			want *= 2 // each with its reservation
		}
		if key := strings.Join(now, " "); key == last && there == want {
			break
		} else {
			last = key
		}
		if tries++; tries > 50 {
			s.t.Errorf("%d members run, and in etcd there are: %v", len(s.running), now)
			break
		}
	}
	group, err := member.NewReader(s.srv.Client(s.t), "shard/orders").Members(context.Background())
	if err != nil {
		s.t.Error(err)
	}
	owners, assigned := s.judge.trusted(), shard.Assigned(group, s.n)
	for index, to := range assigned {
		if len(s.running) > 0 && owners[index] != to {
			s.t.Errorf("members unchanged for Settle and 5 s: shard %d is owned by %q, and assigned to %q", index,
				owners[index], to)
		}
	}
	s.note("settled, %d members", len(s.running))
	s.setCalm(false)
}

func (s *simulation) setCalm(calm bool) {
	s.judge.mu.Lock()
	defer s.judge.mu.Unlock()
	s.calm = calm
}
