package shard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/shard"
)

// loads returns how many shards each owner has, such as "a=2 b=6".
func (f *fleet) loads() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := make(map[string]int)
	for _, owner := range f.owner {
		of[owner]++
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(fmt.Sprint(of), ":", "="), "map["), "]")
}

// expect checks the loads after a while.
func (f *fleet) expect(what, loads string) {
	f.t.Helper()
	time.Sleep(settled)
	if got := f.loads(); got != loads {
		f.t.Errorf("%s: %s, want %s", what, got, loads)
	}
}

func withCapacity(c shard.Capacity) func(*shard.Options) {
	return func(o *shard.Options) { o.Capacity = c }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestLoadsFollowTheCapacities(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 24)
		a := f.start("a", 0, withCapacity(shard.Capacity{Weight: 2}))
		b := f.start("b", 0)
		f.expect("weights of 2 and 1", "a=16 b=8")
		must(t, b.shards.Update(t.Context(), shard.Capacity{Weight: 6}))
		f.expect("weights of 2 and 6", "a=6 b=18")
		must(t, b.shards.Update(t.Context(), shard.Capacity{MaxShards: 5}))
		f.expect("the other takes at most 5", "a=19 b=5")
		must(t, a.shards.Update(t.Context(), shard.Capacity{MaxShards: 7}))
		f.expect("12 are left over", "a=7 b=5")
		must(t, a.shards.Update(t.Context(), shard.Capacity{Zone: "x"}))
		must(t, b.shards.Update(t.Context(), shard.Capacity{Zone: "y"}))
		c := f.start("c", 0, withCapacity(shard.Capacity{Zone: "y", Weight: 2}))
		f.expect("two zones", "a=12 b=4 c=8")
		c.stop()
		srv.Revoke(b.Sess.Lease())
		time.Sleep(kit.TTL + kit.LockDelay)
		f.expect("under the next lease", "a=12 b=12")
	})
}

// One shard is an election with a preferred leader, as docs/elections.md says.
func TestOneShardIsForTheMemberWithTheLargestWeight(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		for _, name := range []string{"a", "b", "c", "d"} {
			f.start(name, 0)
		}
		time.Sleep(settled)
		for _, name := range []string{"p", "q"} {
			preferred := f.start(name, 0, withCapacity(shard.Capacity{Weight: 100}))
			f.expect("it is there", name+"=1")
			preferred.stop()
			time.Sleep(settled)
			if got := f.loads(); strings.Contains(got, name) || !strings.HasSuffix(got, "=1") {
				t.Errorf("%s has left: %s", name, got)
			}
		}
		e := f.start("e", 0)
		time.Sleep(settled)
		must(t, e.shards.Update(t.Context(), shard.Capacity{Weight: 2}))
		f.expect("one says so while it runs", "e=1")
	})
}

func TestMemberOutOfServiceHandsItsShardsOver(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		a, longer := f.start("a", 2*time.Second), time.Second
		b := f.start("b", longer)
		f.expect("before", "a=4 b=4")
		must(t, a.shards.Update(t.Context(), shard.Capacity{OutOfService: true}))
		time.Sleep(time.Second)
		if got := f.loads(); got != "a=4 b=4" {
			t.Errorf("before its functions have returned: %s", got)
		}
		f.expect("a out of service", "b=8")
		must(t, b.shards.Update(t.Context(), shard.Capacity{OutOfService: true}))
		f.expect("both out of service", "")
		must(t, a.shards.Update(t.Context(), shard.Capacity{}))
		f.expect("a back", "a=8")
		b.stop()
		if err := b.shards.Update(t.Context(), shard.Capacity{}); !errors.Is(err, shard.ErrNotRunning) {
			t.Errorf("after Run: %v", err)
		} else if !strings.Contains(err.Error(), `shards "orders"`) {
			t.Errorf("it names no shards: %v", err)
		}
	})
}

// Its reservation says what it takes, also what it has said since it was put.
func TestAbsentMemberKeepsItsCapacity(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 12)
		a := f.start("a", 0, withRejoin)
		f.start("b", 0)
		time.Sleep(settled)
		must(t, a.shards.Update(t.Context(), shard.Capacity{Weight: 3}))
		f.expect("before", "a=9 b=3")
		begun := f.calls()
		a.Link.BlackHole()
		time.Sleep(kit.TTL + kit.LockDelay + time.Second)
		f.expect("it has died", "b=3")
		if n := f.calls(); n != begun {
			t.Errorf("%d shards have moved", n-begun)
		}
	})
}

func TestDrainStandsUntilItsMemberHasBeenGoneForAnHour(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(etcdfake.Options{Members: 3})
		t.Cleanup(srv.Close)
		f := newFleet(t, srv, 8)
		adm := admin.New(srv.Client(t), admin.Options{Owner: "op"})
		start := func(name string) *running {
			// Sessions that poll twice a second, for hours, would be most of what this test costs.
			return f.startWith(kit.StartQuiet(t, srv), name, f.work(name, 0))
		}
		a := start("a/\x01 ü")
		start("b")
		f.expect("before", "a/\x01 ü=4 b=4")
		must(t, adm.DrainMember(t.Context(), "orders", "a/\x01 ü"))
		f.expect("drained", "b=8")
		must(t, adm.DrainMember(t.Context(), "orders", "a/\x01 ü"))
		time.Sleep(80 * time.Minute)
		f.expect("for long", "b=8")
		a.stop()
		time.Sleep(55 * time.Minute)
		a = start("a/\x01 ü")
		f.expect("back within the hour", "b=8")
		for i, want := range []bool{true, false} {
			if was, err := adm.UndrainMember(t.Context(), "orders", "a/\x01 ü"); err != nil || was != want {
				t.Errorf("undrain %d: %v, %v", i, was, err)
			}
		}
		f.expect("undrained", "a/\x01 ü=4 b=4")
		must(t, adm.DrainMember(t.Context(), "orders", "a/\x01 ü"))
		f.expect("drained again", "b=8")
		a.stop()
		time.Sleep(76 * time.Minute)
		start("a/\x01 ü")
		f.expect("gone for more than an hour", "a/\x01 ü=4 b=4")
	})
}

// Each 15 minutes, whether others join or leave; each minute, if that fails; once more, after the drain has ended.
func TestDrainIsRenewedSeldom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(etcdfake.Options{Members: 3})
		t.Cleanup(srv.Close)
		f, adm := newFleet(t, srv, 2), admin.New(srv.Client(t), admin.Options{})
		var log bytes.Buffer
		a := f.startWith(kit.StartQuiet(t, srv, holdtest.LogTo(&log)), "a", f.work("a", 0))
		time.Sleep(settled)
		var mu sync.Mutex
		var drained clientv3.LeaseID
		sent, fate := 0, etcdfake.Fate{}
		drain := func() {
			must(t, adm.DrainMember(t.Context(), "orders", "a"))
			group, err := member.NewReader(srv.Client(t), a.shards.Group()).Members(t.Context())
			must(t, err)
			mu.Lock()
			defer mu.Unlock()
			drained = group.Drained[0].Lease
		}
		a.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			mu.Lock()
			defer mu.Unlock()
			if r, ok := c.Request.(*pb.LeaseKeepAliveRequest); ok && r.ID == int64(drained) {
				sent++
				return fate
			}
			return etcdfake.Fate{}
		})
		plan := func(of etcdfake.Fate) {
			mu.Lock()
			defer mu.Unlock()
			fate = of
		}
		drain()
		expect := func(what string, least, most int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if sent < least || sent > most {
				t.Errorf("%s: renewed %d times", what, sent)
			}
			sent = 0
		}
		for range 5 {
			b := f.startWith(kit.StartQuiet(t, srv), "b", f.work("b", 0))
			time.Sleep(6 * time.Minute)
			b.stop()
			time.Sleep(6 * time.Minute)
		}
		expect("for an hour", 3, 5)
		plan(etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied})
		time.Sleep(30 * time.Minute)
		expect("refused", 15, 30)
		plan(etcdfake.Fate{})
		time.Sleep(time.Hour)
		expect("no more refused", 3, 5)
		_, err := adm.UndrainMember(t.Context(), "orders", "a")
		must(t, err)
		time.Sleep(time.Hour)
		expect("undrained", 0, 1)
		warned := strings.Count(log.String(), "was not renewed")
		plan(etcdfake.Fate{LoseRequest: true, Silent: true})
		drain()
		time.Sleep(settled)
		a.stop()
		if n := strings.Count(log.String(), "was not renewed"); warned < 15 || warned > 30 || n != warned {
			t.Errorf("%d warnings, %d after the end:\n%s", warned, n, &log)
		}
	})
}

func TestPinMovesOneShardForItsTime(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		adm := admin.New(srv.Client(t), admin.Options{Owner: "op"})
		a, b := f.start("a", 0), f.start("b", 0)
		time.Sleep(settled)
		f.mu.Lock()
		before, index := maps.Clone(f.owner), 0
		f.mu.Unlock()
		for before[index] != "a" {
			index++
		}
		move := func(to string, d time.Duration, replaced string) {
			t.Helper()
			p, err := adm.MoveShard(t.Context(), "orders", index, to, d)
			if err != nil || p.Replaced != replaced {
				t.Errorf("%+v, %v", p, err)
			}
		}
		begun := f.calls()
		move("b", 0, "")
		f.expect("pinned", "a=3 b=5")
		if moved := f.calls() - begun; moved != 1 || f.owner[index] != "b" {
			t.Errorf("%d moved, shard %d is owned by %s", moved, index, f.owner[index])
		}
		must(t, b.shards.Update(t.Context(), shard.Capacity{OutOfService: true}))
		f.expect("its member is out of service", "a=8")
		must(t, b.shards.Update(t.Context(), shard.Capacity{MaxShards: 3}))
		f.expect("its member is full", "a=5 b=3")
		must(t, b.shards.Update(t.Context(), shard.Capacity{}))
		f.expect("its member is back", "a=3 b=5")
		move("a", time.Minute, "b")
		f.expect("pinned to its own", "a=4 b=4")
		move("b", 2*time.Minute, "a")
		f.expect("replaced", "a=3 b=5")
		time.Sleep(2*time.Minute + 2*time.Second)
		f.expect("it is over", "a=4 b=4")
		if !maps.Equal(f.owner, before) {
			t.Errorf("%v, before %v", f.owner, before)
		}
		a.stop()
		b.stop()
		f.empty()
	})
}

func TestBadSteeringIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		adm := admin.New(srv.Client(t), admin.Options{})
		if err := adm.DrainMember(t.Context(), "orders", "a"); !errors.As(err, new(*admin.MemberError)) {
			t.Errorf("before the first Run: %v", err)
		}
		a := f.start("a", 0)
		time.Sleep(settled)
		written := len(srv.History(""))
		before := a.Link.Count()
		pin := func(index int, to string, d time.Duration) error {
			_, err := adm.MoveShard(t.Context(), "orders", index, to, d)
			return err
		}
		run := func(c shard.Capacity) error {
			return a.shards.With(shard.Options{Capacity: c}).Run(t.Context(), f.work("a", 0))
		}
		_, badName := adm.UndrainMember(t.Context(), "a//b", "a")
		var noContext context.Context
		for argument, err := range map[string]error{
			"index":                      pin(-1, "a", 0),
			"d":                          pin(0, "a", 25*time.Hour),
			"member":                     pin(0, "", 0),
			"ctx":                        shard.New(a.Sess, "orders", 4).Update(noContext, shard.Capacity{}),
			"receiver":                   new(shard.Shards).Update(t.Context(), shard.Capacity{}),
			"c.Weight":                   a.shards.Update(t.Context(), shard.Capacity{Weight: member.MaxWeight + 1}),
			"c.MaxShards":                a.shards.Update(t.Context(), shard.Capacity{MaxShards: -1}),
			"c.Zone":                     a.shards.Update(t.Context(), shard.Capacity{Zone: "\xff"}),
			"Options.Capacity.Weight":    run(shard.Capacity{Weight: -1}),
			"Options.Capacity.MaxShards": run(shard.Capacity{MaxShards: -1}),
		} {
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || bad.Argument != argument {
				t.Errorf("%s: %v", argument, err)
			}
		}
		var none *shard.Shards
		if err := none.Update(t.Context(), shard.Capacity{}); !errors.As(err, new(*holdfast.ArgumentError)) {
			t.Errorf("no shards: %v", err)
		}
		if !errors.As(badName, new(*holdfast.NameError)) {
			t.Errorf("%v", badName)
		}
		synctest.Wait()
		if after := a.Link.Count(); !maps.Equal(before, after) {
			t.Errorf("sent %v, before %v", after, before)
		}
		var unknown *admin.MemberError
		if err := pin(0, "c", 0); !errors.As(err, &unknown) || fmt.Sprint(unknown.Members) != "[a]" {
			t.Errorf("unknown member: %v", err)
		}
		var missing *admin.ShardError
		if err := pin(4, "a", 0); !errors.As(err, &missing) || missing.Count != 4 {
			t.Errorf("no such shard: %v", err)
		}
		if now := len(srv.History("")); now != written {
			t.Errorf("%d changes, before %d", now, written)
		}
	})
}

// A drain whose requests are lost or late takes effect once, and a late copy does not undo an undrain.
func TestDrainWithLostAndLateRequests(t *testing.T) {
	for lost := range 4 {
		for _, fate := range []etcdfake.Fate{
			{LoseReply: true, Silent: true}, {LoseRequest: true, Silent: true}, {Request: time.Minute}, {Reply: time.Minute},
		} {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				f := newFleet(t, srv, 4)
				f.start("a", 0)
				f.start("b", 0)
				time.Sleep(settled)
				link, sent := srv.Link(), 0
				link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					if c.Request == nil {
						return etcdfake.Fate{}
					}
					if sent++; sent-1 == lost {
						return fate
					}
					return etcdfake.Fate{}
				})
				adm := admin.New(link.Client(), admin.Options{})
				must(t, adm.DrainMember(kit.Within(t, time.Minute), "orders", "a"))
				f.expect("drained", "b=4")
				if was, err := adm.UndrainMember(kit.Within(t, time.Minute), "orders", "a"); err != nil || !was {
					t.Errorf("%v, %v", was, err)
				}
				time.Sleep(2 * time.Minute)
				f.expect("undrained", "a=2 b=2")
			})
		}
	}
}
