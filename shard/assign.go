package shard

import (
	"hash/fnv"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/member"
)

// Of returns the shard that a key is in, of n: 0 to n-1. It is the same in every process and every version: FNV-1a of
// the key with 64 bits, mixed by the last step of SplitMix64, modulo n. It panics if n is not positive.
//
// Another n puts most keys into other shards.
func Of(key string, n int) int {
	if n < 1 {
		panic("shard.Of: n is not positive")
	}
	return int(hash(key) % uint64(n)) //nolint:gosec // less than n
}

// hash returns a number for a text. It must never change: processes of two versions would assign shards unlike each
// other, and find keys in other shards.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // has no error
	return mix(h.Sum64())
}

// mix is the last step of SplitMix64. Of FNV-1a alone the last letters of a text change only some of the bits, and
// names of processes often differ in their last letters.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Assigned returns the name of the member that each of n shards is assigned to, by index, as all members of this
// version compute it from their group (see [Reader.Group]); "" if no member has room for it. Those that retire or are
// out of service are assigned none; those that are absent and expected back keep theirs. A pin comes before all else
// but its member's MaxShards. It is advice: who owns a shard is in [Owners].
func Assigned(group member.Group, n int) []string {
	all := candidates(group)
	names := make([]string, max(0, n))
	for index, m := range assign(all, len(names)) {
		if m >= 0 {
			names[index] = all[m].name
		}
	}
	pin(group.Pins, all, names)
	return names
}

// candidate is a member that shards can be assigned to.
type candidate struct {
	name string
	member.Capacity
}

// candidates returns those of a group by name, each once. Processes of one name count as one that takes what the
// youngest says: the other is about to go.
func candidates(group member.Group) (all []candidate) {
	drained := make(map[string]bool)
	for _, d := range group.Drained {
		drained[d.Member] = true
	}
	says := make(map[string]member.Capacity)
	for _, m := range slices.Concat(group.Members, group.Absent) { // those of one name by age
		if !m.Retiring && !m.OutOfService && !drained[m.Name] {
			says[m.Name] = m.Capacity
		}
	}
	for _, name := range slices.Sorted(maps.Keys(says)) {
		all = append(all, candidate{name, says[name]})
	}
	return all
}

// pin gives shards to the members they are pinned to, but for those that are not there or have no room. Pins change
// nothing else: a member has its pins beside its part, so that one moves one shard, and its end moves it back.
func pin(pins []member.Pin, all []candidate, names []string) {
	load := make(map[string]int)
	for _, name := range names {
		load[name]++
	}
	for _, p := range pins { // by shard
		if p.Shard >= len(names) || names[p.Shard] == p.Member {
			continue
		}
		at := slices.IndexFunc(all, func(c candidate) bool { return c.name == p.Member })
		if at < 0 || all[at].MaxShards > 0 && load[p.Member] >= all[at].MaxShards {
			continue
		}
		load[names[p.Shard]]--
		load[p.Member]++
		names[p.Shard] = p.Member
	}
}

// assign returns the owner of each of n shards: an index into members, or -1 if none has room. All processes of one
// version with one list compute the same. members are sorted and without doubles.
//
// It shares the shards among the zones, and those of each zone among its members: what changes in one zone moves none
// of another. What no member has room for goes to one that does not exist, so that it, too, stays as it is.
func assign(members []candidate, n int) []int {
	zones := rooms(members, n)
	owners, all := make([]int, n), make([]int, n)
	for shard := range n {
		owners[shard], all[shard] = -1, shard
	}
	for z, shards := range share(all, zones) {
		for m, of := range share(shards, zones[z].members) {
			for _, shard := range of {
				owners[shard] = zones[z].members[m].index
			}
		}
	}
	return owners
}
