package shard_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/shard"
)

func withSettle(d time.Duration) func(*shard.Options) {
	return func(o *shard.Options) { o.Settle = d }
}

// most returns how often the function of that shard was called for which it was called most often.
func (f *fleet) most() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, calls := range f.begun {
		n = max(n, calls)
	}
	return n
}

// A fleet starts within 2 s; with -shard.full 200 members share 256 shards.
func TestFleetThatStartsMovesFewShards(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		n, m, within := 52, 40, 2*time.Second
		if *full {
			n, m = 256, 200
		}
		f := newFleet(t, srv, n)
		var names []string
		for i := range m {
			names = append(names, fmt.Sprint("m", i))
			f.start(names[i], 0)
			time.Sleep(within / time.Duration(m))
		}
		time.Sleep(settle - within/2)
		if f.calls() > 0 {
			t.Errorf("%d functions were called before the members have settled", f.calls())
		}
		time.Sleep(settled)
		f.even("afterwards", names...)
		t.Logf("%d members, %d shards: %d calls of functions, at most %d for one shard", m, n, f.calls(), f.most())
		if f.calls() > n+n/2 || f.most() > 3 {
			t.Errorf("%d calls of functions, %d for one shard", f.calls(), f.most())
		}
	})
}

// A fleet that has settled is doubled within 2 s: each shard moves at most once, and none before that is over.
func TestMembersThatJoinTogetherMoveAShardOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const n, m, within = 64, 8, 2 * time.Second
		f := newFleet(t, srv, n)
		startAll(f, m, 0)
		owners, calls := f.owners(), f.calls()
		names := []string{"m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"}
		for i := range m {
			time.Sleep(within / m)
			names = append(names, fmt.Sprint("joins", i))
			f.start(names[m+i], 0)
		}
		time.Sleep(settle - within/m)
		if now := f.owners(); !maps.Equal(now, owners) || f.calls() != calls {
			t.Errorf("within Settle: %d calls; owners %v, before %v", f.calls()-calls, now, owners)
		}
		time.Sleep(settled)
		f.even("afterwards", names...)
		if f.most() > 2 || f.longest > 300*time.Millisecond {
			t.Errorf("a shard moved %d times, and one had no owner for %v", f.most()-1, f.longest)
		}
	})
}

// One more joins each second, for ever: each waits ten times as long, and no longer.
func TestMemberWaitsTenTimesSettleAtMost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 64)
		f.start("a", 0)
		time.Sleep(settled)
		last, owned := 0, func() (m int) {
			of := make(map[string]bool)
			for _, owner := range f.owners() {
				of[owner] = true
			}
			return len(of)
		}
		for i := range 35 {
			f.start(fmt.Sprint("m", i), 0)
			time.Sleep(time.Second)
			switch after, now := time.Duration(i+1)*time.Second, owned(); {
			case after < 10*settle && now != 1:
				t.Errorf("after %v there are %d owners", after, now)
			case after > 10*settle && now != last+1:
				t.Errorf("after %v there are %d owners, and were %d", after, now, last)
			}
			last = owned()
		}
	})
}

// One leaves and one is killed while a third waits: their shards go to the fourth, which has settled, as without it.
func TestShardsOfThoseThatGoAreTakenBeforeOthersHaveSettled(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 12)
		long := withSettle(time.Minute)
		all := startAll(f, 3, 0, long)
		time.Sleep(time.Minute)
		f.even("before", "m0", "m1", "m2")
		all[0].Link.BlackHole()
		time.Sleep(time.Second)
		f.start("joins", 0, long)
		time.Sleep(time.Second)
		all[1].stop()
		f.gone("m0")
		time.Sleep(time.Second)
		if owned := f.owned(); owned != 6 { // the other half is for the one whose lease has not ended
			t.Errorf("one has left: %d shards are owned", owned)
		}
		time.Sleep(kit.TTL + kit.LockDelay)
		f.even("one has died", "m2")
		time.Sleep(time.Minute)
		f.even("afterwards", "m2", "joins")
	})
}

// The old process leaves before the new one has settled: the shards have no owner that would lose them.
func TestShardsOfTheLastOwnerAreTakenAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		a := f.start("a", 0)
		time.Sleep(settled)
		f.start("b", 0)
		time.Sleep(settle / 3)
		f.even("before", "a")
		a.stop()
		time.Sleep(settle / 3)
		f.even("afterwards", "b")
	})
}

// A new process waits beside the old one, which is taken out of service; it does not wait when it is back.
func TestShardsOfTheLastInServiceAreTakenAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		adm := admin.New(srv.Client(t), admin.Options{Owner: "op"})
		expect := func(what string, names ...string) {
			t.Helper()
			time.Sleep(settle / 3)
			f.even(what, names...)
		}
		a := f.start("a", 0)
		time.Sleep(settled)
		f.start("b", 0)
		expect("before", "a")
		must(t, adm.DrainMember(t.Context(), "orders", "a"))
		expect("a is drained", "b")
		if _, err := adm.UndrainMember(t.Context(), "orders", "a"); err != nil {
			t.Error(err)
		}
		expect("a is back", "a", "b")
		f.start("c", 0)
		must(t, a.shards.Update(t.Context(), shard.Capacity{OutOfService: true}))
		expect("a takes none, and c has not settled", "b")
		time.Sleep(settle)
		f.even("c has settled", "b", "c")
	})
}

// What a member takes counts once it has settled: its weight, and a pin to it.
func TestCapacityAndPinCountOnceAMemberHasSettled(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 12)
		adm := admin.New(srv.Client(t), admin.Options{Owner: "op"})
		f.start("a", 0)
		time.Sleep(settled)
		f.start("b", 0, withCapacity(shard.Capacity{Weight: 2}))
		time.Sleep(settle / 3)
		for index := range 12 {
			_, err := adm.MoveShard(t.Context(), "orders", index, "b", time.Minute)
			must(t, err)
		}
		time.Sleep(settle / 3)
		if got := f.loads(); got != "a=12" {
			t.Errorf("b has not settled: %s", got)
		}
		f.expect("b has settled", "b=12")
		time.Sleep(time.Minute)
		f.expect("the pins have ended", "a=4 b=8")
	})
}

func TestNegativeSettleIsNoWait(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		f.start("a", 0, withSettle(-1))
		time.Sleep(settle / 3)
		f.even("alone", "a")
		f.start("b", 0, withSettle(-1))
		time.Sleep(settle / 3)
		f.even("both", "a", "b")
	})
}

// The reader sees who has not settled, by what the members say: each beside a fleet that has, and one that comes back
// under a name that is there.
func TestMembersThatHaveNotSettledAreNamed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		r := member.NewReader(srv.Client(t), "shard/orders")
		expect := func(what string, names ...string) {
			t.Helper()
			group, err := r.Members(t.Context())
			must(t, err)
			if got := shard.Settling(group, time.Now()); !slices.Equal(got, names) {
				t.Errorf("%s: %q have not settled, want %q", what, got, names)
			}
		}
		f.start("a", 0)
		f.start("b", 0)
		time.Sleep(settle / 2)
		expect("at the start", "a", "b")
		time.Sleep(settle)
		expect("afterwards")
		f.start("c", 0)
		time.Sleep(settle / 2)
		f.start("a", 0) // beside its twin, which has settled
		d := f.start("d", 0)
		time.Sleep(settle * 3 / 4)
		expect("d has joined later than c", "c", "d")
		f.even("c and d have not settled", "a", "b")
		time.Sleep(settle / 2)
		expect("both have settled")
		f.even("both have settled", "a", "b", "c", "d")
		d.stop()
		e := f.start("e", 0, withSettle(-1))
		time.Sleep(settle / 10)
		expect("e does not wait")
		e.stop()
		var wait []string
		for i := range 18 { // for longer than ten times Settle
			name := fmt.Sprint("m", i)
			f.start(name, 0)
			time.Sleep(2 * time.Second)
			if i > 3 {
				wait = append(wait, name)
			}
		}
		time.Sleep(time.Second / 2)
		slices.Sort(wait)
		expect("the first four have waited ten times as long", wait...)
		f.even("the first four have waited ten times as long", "a", "b", "c", "m0", "m1", "m2", "m3")
	})
}

// By the texts of the members alone, seconds after the first has joined.
func TestSettlingIsJudgedByTheOldestOfEachName(t *testing.T) {
	began := time.Now()
	info := func(name string, joined, settle time.Duration) member.Info {
		return member.Info{Name: name, Joined: began.Add(joined), Settle: settle}
	}
	retiring := info("a", 0, settle)
	retiring.Retiring = true
	for what, c := range map[string]struct {
		members []member.Info
		after   time.Duration
		want    []string
	}{
		"retiring":                     {[]member.Info{retiring}, time.Second, nil},
		"behind one that retires":      {[]member.Info{retiring, info("a", time.Second, settle)}, settle, []string{"a"}},
		"at the end":                   {[]member.Info{info("a", 0, settle)}, settle, nil},
		"just before":                  {[]member.Info{info("a", 0, settle)}, settle - 1, []string{"a"}},
		"a twin, which does not count": {[]member.Info{info("a", 0, settle), info("a", settle-1, settle)}, settle + 1, nil},
		"one that was there before":    {[]member.Info{info("a", 0, settle), info("b", settle-1, 0)}, settle + 1, nil},
		"another one joins before that": {
			[]member.Info{info("a", 0, settle), info("b", settle-1, settle)}, settle + 1, []string{"a", "b"},
		},
	} {
		got := shard.Settling(member.Group{Members: c.members}, began.Add(c.after))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// A name that is expected back does not wait. One that comes while its old process still retires does.
func TestNameThatComesBackWaitsUnlessItIsExpected(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*shard.Options)
		waiting []string
	}{
		"with Rejoin": {withRejoin, nil}, "without": {withSettle(settle), []string{"a"}},
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			f := newFleet(t, srv, 8)
			a := f.start("a", settle, c.change)
			f.start("b", 0)
			time.Sleep(settled)
			a.leave() // its functions go on for a while
			time.Sleep(time.Second)
			f.startWith(kit.Start(t, srv), "a", f.work("a", 0), c.change)
			time.Sleep(settle * 5 / 6) // the old process has gone
			group, err := member.NewReader(srv.Client(t), "shard/orders").Members(t.Context())
			must(t, err)
			if got := shard.Settling(group, time.Now()); !slices.Equal(got, c.waiting) {
				t.Errorf("%s: %q have not settled, want %q", name, got, c.waiting)
			}
			time.Sleep(2 * settled)
			f.even("afterwards", "a", "b")
		})
	}
}
