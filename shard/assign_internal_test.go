package shard

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/member"
)

// deployed returns m members, sorted, as those of one deployment.
func deployed(deployment, m int) (all []candidate) {
	for i := range m {
		all = append(all, candidate{name: fmt.Sprintf("orders-%d-%d", deployment, i)})
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })
	return all
}

// load returns how many shards each member has.
func load(owners []int, m int) []int {
	of := make([]int, m)
	for _, owner := range owners {
		of[owner]++
	}
	return of
}

// Processes of other versions compute the same: these values must never change.
func TestAssignmentAndShardsOfKeysStayAsTheyAre(t *testing.T) {
	for key, want := range map[string]int{"": 27, "a": 56, "customer-4711": 61, "\xff": 13} {
		if got := Of(key, 64); got != want {
			t.Errorf("Of(%q, 64) = %d, want %d", key, got, want)
		}
	}
	got := assign([]candidate{{name: "pod-0"}, {name: "pod-1"}, {name: "pod-2"}}, 16)
	if want := []int{2, 2, 1, 1, 2, 2, 0, 0, 1, 1, 1, 0, 0, 2, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	sum := fnv.New64a()
	for i := range uint64(400) {
		draw := func(what string, below uint64) int { return int(hash(fmt.Sprint(what, i)) % below) }
		all := deployed(int(i), 1+draw("members", 12))
		for m := range all {
			c := &all[m].Capacity
			if i%2 > 0 {
				c.Weight = 1 + draw(fmt.Sprint("weight", m), 9)
			}
			if i%4 > 1 {
				c.MaxShards = draw(fmt.Sprint("most", m), 30)
			}
			if i%8 > 3 {
				c.Zone = fmt.Sprint(m % 3)
			}
		}
		fmt.Fprint(sum, assign(all, 1+draw("shards", 200)))
	}
	if got, want := sum.Sum64(), uint64(0xac34d6a2715cd4c9); got != want {
		t.Errorf("with weights, limits and zones: %#x, want %#x", got, want)
	}
	sum.Reset()
	fmt.Fprint(sum, logs, logOf(0), logOf(1<<63), logOf(math.MaxUint64))
	if got, want := sum.Sum64(), uint64(0xd4df722aec25045b); got != want {
		t.Errorf("logarithms: %#x, want %#x", got, want)
	}
}

func TestShardOfAKeyNeedsAShard(t *testing.T) {
	if got := Of("a", 1); got != 0 {
		t.Errorf("of one shard: %d", got)
	}
	for _, n := range []int{0, -1} {
		func() {
			defer func() {
				if v := recover(); v != "shard.Of: n is not positive" {
					t.Errorf("of %d shards: %v", n, v)
				}
			}()
			t.Error(Of("a", n))
		}()
	}
	group := member.Group{Members: []member.Info{{Name: "a"}}}
	for _, n := range []int{0, -1} {
		if got := Assigned(group, n); len(got) != 0 {
			t.Errorf("%d shards: %q", n, got)
		}
	}
}

// Pins outlive a resize, and none makes its member take more than it said.
func TestPinsOutOfReachAreIgnored(t *testing.T) {
	info := func(name string, most int) member.Info {
		return member.Info{Name: name, Capacity: Capacity{MaxShards: most}}
	}
	const n = 8
	group := func(most int, pins ...member.Pin) member.Group {
		return member.Group{Members: []member.Info{info("a", 0), info("b", most)}, Pins: pins}
	}
	plain := Assigned(group(0), n)
	gone := []member.Pin{{Shard: n, Member: "b"}, {Shard: n + 3, Member: "b"}}
	if got := Assigned(group(0, gone...), n); !slices.Equal(got, plain) {
		t.Errorf("shards that are no more: %v, want %v", got, plain)
	}
	var all []member.Pin
	for shard := range n {
		all = append(all, member.Pin{Shard: shard, Member: "b"})
	}
	count := func(of []string) (n int) {
		for _, name := range of {
			if name == "b" {
				n++
			}
		}
		return n
	}
	for _, most := range []int{1, 5} {
		if got := Assigned(group(most, all...), n); count(got) != most {
			t.Errorf("all pinned to one that takes %d: %v", most, got)
		}
	}
	// b is full. A pin takes one of its shards away, so there is room for another one.
	full := Assigned(group(4), n)
	from, to := slices.Index(full, "b"), n-1-slices.Index(reversed(full), "a")
	if from > to {
		t.Fatalf("this case needs another number of shards: %v", full)
	}
	got := Assigned(group(4, member.Pin{Shard: from, Member: "a"}, member.Pin{Shard: to, Member: "b"}), n)
	if got[from] != "a" || got[to] != "b" || count(got) != 4 {
		t.Errorf("shard %d to a, %d to b: %v, before %v", from, to, got, full)
	}
}

func reversed(all []string) []string {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

// Else the first process with a zone, in a rolling upgrade, would be given half of all shards.
func TestZonesCountOnceEachMemberNamesOne(t *testing.T) {
	all := []candidate{{name: "a"}, {name: "b"}, {name: "c"}, {"d", Capacity{Zone: "x"}}}
	if of := load(assign(all, 16), 4); !slices.Equal(of, []int{4, 4, 4, 4}) {
		t.Errorf("one of four names a zone: loads %v", of)
	}
}

func TestLoadsDifferByAtMostOne(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 8, 64, 100, 1024} {
		for _, m := range []int{1, 2, 3, 5, 8, 13, 20} {
			owners := assign(deployed(n, m), n)
			if of := load(owners, m); slices.Max(of)-slices.Min(of) > 1 {
				t.Errorf("%d shards, %d members: loads %v", n, m, of)
			}
		}
	}
	if owners := assign(nil, 3); !slices.Equal(owners, []int{-1, -1, -1}) {
		t.Errorf("without members: %v", owners)
	}
}

// A member that joins, or, in the other direction, leaves.
func TestFewShardsMoveWhenAMemberJoins(t *testing.T) {
	const deployments = 20
	for _, c := range []struct{ n, m int }{{64, 7}, {64, 8}, {200, 10}, {1024, 20}} {
		moved := 0
		for deployment := range deployments {
			all := deployed(deployment, c.m+1)
			joined := deployment % len(all)
			before := slices.Delete(slices.Clone(all), joined, joined+1)
			was, is := assign(before, c.n), assign(all, c.n)
			for shard := range c.n {
				if before[was[shard]] != all[is[shard]] {
					moved++
				}
			}
		}
		mean, most := float64(moved)/deployments, 1.5*float64((c.n+c.m-1)/c.m)
		t.Logf("%d shards, %d members and one more: %.1f move, at best %.1f", c.n, c.m, mean, float64(c.n)/float64(c.m+1))
		if mean > most {
			t.Errorf("%d shards, %d members and one more: %.1f move, want at most %.1f", c.n, c.m, mean, most)
		}
	}
}

func TestKeysSpreadOverAllShards(t *testing.T) {
	const keys = 100
	for _, n := range []int{2, 3, 64} {
		of := make([]int, n)
		for i := range keys * n {
			of[Of(fmt.Sprintf("customer-%d", i), n)]++
		}
		if slices.Min(of) < keys/2 || slices.Max(of) > 2*keys {
			t.Errorf("%d shards: %v keys", n, of)
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, c := range []struct{ n, m int }{{64, 8}, {1024, 20}, {10_000, 20}, {10_000, 100}} {
		b.Run(fmt.Sprintf("%d shards, %d members", c.n, c.m), func(b *testing.B) {
			members := deployed(0, c.m)
			for b.Loop() {
				assign(members, c.n)
			}
		})
		b.Run(fmt.Sprintf("%d shards, %d members with weights", c.n, c.m), func(b *testing.B) {
			members := deployed(0, c.m)
			for m := range members {
				members[m].Weight = 1 + m%4
			}
			for b.Loop() {
				assign(members, c.n)
			}
		})
	}
}
