package shard_test

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

var full = flag.Bool("shard.full", false, "tests of many members and shards have as many as docs/shards.md names")

// size returns how many shards and members a test has.
func size() (n, m int) {
	if *full {
		return 200, 10
	}
	return 24, 4
}

func startAll(f *fleet, m int, longer time.Duration, change ...func(*shard.Options)) (all []*running) {
	for i := range m {
		all = append(all, f.start(fmt.Sprint("m", i), longer, change...))
	}
	time.Sleep(settled)
	return all
}

// Members whose shards do not move send nothing, and a move costs the same however many members and shards there are.
func TestJoinCostsRequestsForTheShardsThatMove(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		n, m := size()
		f := newFleet(t, srv, n)
		all := startAll(f, m, 0)
		before := f.calls()
		for _, r := range all {
			r.Plan(nil)
		}
		p := kit.Start(t, srv)
		p.Plan(nil)
		all = append(all, f.startWith(p, "joins", f.work("joins", 0)))
		time.Sleep(settled)
		moved := f.calls() - before
		sent := make(map[string]int)
		for _, r := range all {
			for kind, n := range r.Counts() {
				sent[kind] += n
			}
		}
		t.Logf("%d shards, %d members and one more: %d moved, sent %v", n, m, moved, sent)
		// In batches; the member that joins queues for its shards, and puts the count and its key.
		if writes := sent["enqueue"] + sent["remove"] + sent["hand-off"]; writes > 2*moved+2+m {
			t.Errorf("%d writes for %d moves", writes, moved)
		}
		if sent["watch"] > moved+1 || sent["read"] > 2*moved+m {
			t.Errorf("%d watches and %d reads for %d moves", sent["watch"], sent["read"], moved)
		}
	})
}

// A change of what a member takes, a drain and a pin cost what the moves cost, and their own few requests.
func TestSteeringCostsRequestsForTheShardsThatMove(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		n, m := 24, 4
		if *full {
			n, m = 10_000, 20
		}
		f := newFleet(t, srv, n)
		all := startAll(f, m, 0)
		time.Sleep(time.Minute)
		link := srv.Link()
		adm := admin.New(link.Client(), admin.Options{})
		update := func(c shard.Capacity) func() error {
			return func() error { return all[0].shards.Update(t.Context(), c) }
		}
		for _, c := range []struct {
			what   string
			change func() error
			own    int // requests of the operator
		}{
			{"twice the weight", update(shard.Capacity{Weight: 2}), 0},
			{"at most three", update(shard.Capacity{Weight: 2, MaxShards: 3}), 0},
			{"no limit", update(shard.Capacity{Weight: 2}), 0},
			{"a pin", func() error { _, err := adm.MoveShard(t.Context(), "orders", 0, "m1", 0); return err }, 3},
			{"drain", func() error { return adm.DrainMember(t.Context(), "orders", "m0") }, 3},
			{"undrain", func() error { _, err := adm.UndrainMember(t.Context(), "orders", "m0"); return err }, 2},
		} {
			for _, r := range all {
				r.delayed()
			}
			operator := 0
			link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				if c.Request != nil {
					operator++
				}
				return etcdfake.Fate{}
			})
			before, began := f.calls(), time.Now()
			f.longest, f.latest = 0, began
			if err := c.change(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			moved, sent := f.calls()-before, sharedBy(all)
			t.Logf("%d shards, %d members, %s: %d moved within %v, at most %v without an owner, sent %v, the operator %d", n, m,
				c.what, moved, f.latest.Sub(began), f.longest, sent, operator)
			if writes := sent["enqueue"] + sent["remove"] + sent["hand-off"]; writes > 2*moved+2 || sent["watch"] > moved+1 ||
				sent["read"] > 2*moved+m || operator > c.own {
				t.Errorf("%s: %d moved, sent %v, the operator %d, want %d at most", c.what, moved, sent, operator, c.own)
			}
		}
	})
}

// Each process leaves, and another one of its name joins, one after the other. Functions need a second to return.
func TestRollingRestart(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		n, m := size()
		f := newFleet(t, srv, n)
		const drain = time.Second
		all := startAll(f, m, drain)
		before := f.calls()
		for _, r := range all {
			r.delayed()
		}
		for _, r := range all[:m] {
			r.stop()
			time.Sleep(kit.LockDelay / 10)
			p := kit.Start(t, srv)
			again := &running{Process: p}
			again.delayed()
			all = append(all, again)
			f.startWith(p, r.name, f.work(r.name, drain))
			time.Sleep(settled)
		}
		moved := f.calls() - before
		mean, sent := float64(moved)/float64(n), sharedBy(all)
		t.Logf("%d shards, %d members: %.1f moves of a shard, at most %v without an owner after its function has returned; "+
			"sent %v", n, m, mean, f.longest, sent)
		if mean > 3 {
			t.Errorf("a shard moved %.1f times", mean)
		}
		// Each of 2m times that the members change each member reads and queues in batches; the rest is for the moves.
		if writes := sent["enqueue"] + sent["remove"] + sent["hand-off"]; writes > 2*moved+2*m*m ||
			sent["watch"] > moved+2*m*m || sent["read"] > 2*moved+2*m*m {
			t.Errorf("sent %v for %d moves", sent, moved)
		}
		// The way to etcd and back, and 100 ms if the watch was created after the removal.
		if f.longest > 300*time.Millisecond {
			t.Errorf("a shard had no owner for %v", f.longest)
		}
		if f.owned() != n {
			t.Errorf("%d of %d shards are owned", f.owned(), n)
		}
	})
}

// A process that dies says nothing: its shards are free when its lease has ended, and owned after LockDelay.
func TestShardsOfAProcessThatDiesAreOwnedAfterTTLAndLockDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		n, m := size()
		f := newFleet(t, srv, n)
		all := startAll(f, m, 0)
		all[0].Link.BlackHole()
		began, lost := time.Now(), f.gone(all[0].name)
		for f.owned() < n {
			if time.Since(began) > time.Minute {
				t.Fatalf("%d of %d shards are owned", f.owned(), n)
			}
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		t.Logf("%d of %d shards had no owner for at most %v; the TTL is %v, LockDelay %v", lost, n, took, kit.TTL,
			kit.LockDelay)
		// etcd ends leases twice a second.
		if least, most := kit.LockDelay, kit.TTL+kit.LockDelay+time.Second; took < least || took > most {
			t.Errorf("%v, want %v to %v", took, least, most)
		}
	})
}

// A member at rest sends what a session with as many locks does, and reads the list of members every five minutes.
func TestMembersAtRestSendNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		a, b := f.start("a", 0), f.start("b", 0)
		time.Sleep(time.Minute)
		a.Plan(nil)
		b.Plan(nil)
		time.Sleep(10 * time.Minute)
		for _, p := range []*running{a, b} {
			sent := p.Counts()
			for kind, n := range sent {
				switch kind {
				case "session", "LeaseKeepAlive", "LeaseTimeToLive", "poll": // the session's own
				case "read":
					if n > 2 {
						t.Errorf("%s: %d reads", p.name, n)
					}
				default:
					t.Errorf("%s: %d of %s", p.name, n, kind)
				}
			}
			t.Log(p.name, sent)
		}
	})
}

// As docs/shards.md says.
func TestShardThatIsOwnedNeedsTwoGoroutines(t *testing.T) {
	goroutines := func(n int) (all int) {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			f := newFleet(t, srv, n)
			f.start("a", 0)
			time.Sleep(time.Minute)
			if f.owned() != n {
				t.Errorf("%d of %d shards are owned", f.owned(), n)
			}
			all = runtime.NumGoroutine()
		})
		return all
	}
	const few, many = 4, 20
	if more := goroutines(many) - goroutines(few); more != 2*(many-few) {
		t.Errorf("%d shards more need %d goroutines more", many-few, more)
	}
}
