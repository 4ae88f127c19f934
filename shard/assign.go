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

// hash returns a number for a text. It must never change: two versions would assign shards unlike each other, and find
// keys in other shards.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // has no error
	return mix(h.Sum64())
}

// mix is the last step of SplitMix64. Names of processes often differ in their last letters only, and by FNV-1a alone
// the last letters change few of the bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Assigned returns, for each of n shards, the name of its assigned member, by index; "" if no member has room for it.
// All members of this version compute the same from their group (see [Reader.Group]). Members that retire or are out of
// service are assigned none; members that are absent and expected back keep theirs. A pin comes before all else but its
// member's MaxShards. This is advice: [Owners] says who owns a shard.
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

// candidate is a member in service.
type candidate struct {
	name string
	member.Capacity
}

// candidates returns the members of a group that are in service, by name, each name once. Of several processes of one
// name the capacity of the youngest counts: the others are about to go.
func candidates(group member.Group) (all []candidate) {
	drained := make(map[string]bool)
	for _, d := range group.Drained {
		drained[d.Member] = true
	}
	says := make(map[string]member.Capacity)
	for _, m := range slices.Concat(group.Members, group.Absent) { // of one name: by age
		if !m.Retiring && !m.OutOfService && !drained[m.Name] {
			says[m.Name] = m.Capacity
		}
	}
	for _, name := range slices.Sorted(maps.Keys(says)) {
		all = append(all, candidate{name, says[name]})
	}
	return all
}

// pin gives shards to the members they are pinned to. It ignores a pin whose member is not there, or has no room. A
// member has its pins beside its part. So a pin moves one shard, and its end moves that one back.
func pin(pins []member.Pin, all []candidate, names []string) {
	load := make(map[string]int)
	for _, name := range names {
		load[name]++
	}
	for _, p := range pins { // by shard
		if p.Shard >= len(names) { // there were more shards when it was put
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
func assign(members []candidate, n int) []int {
	// First the shards are shared among the zones, then those of each zone among its members: a change in one zone moves
	// none of another. The shards without room are those of a zone without members, so that they, too, stay as they are.
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
