package shard

import (
	"cmp"
	"container/heap"
	"hash/fnv"
	"math"
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

// Assigned returns the name of the member that each of n shards is assigned to, by index, as all members compute it
// from their group (see [Reader.Group]); "" if there are no members. Those that drain are assigned none; those that are
// absent and expected back keep theirs. It is advice: who owns a shard is in [Owners].
func Assigned(group member.Group, n int) []string {
	var present []string
	for _, m := range group.Members {
		if !m.Draining {
			present = append(present, m.Name)
		}
	}
	for _, m := range group.Absent {
		present = append(present, m.Name)
	}
	slices.Sort(present)
	present = slices.Compact(present)
	all := make([]string, max(0, n))
	for index, m := range assign(present, len(all)) {
		if m >= 0 {
			all[index] = present[m]
		}
	}
	return all
}

// assign returns the owner of each of n shards: an index into members, or -1 if there are none. All processes with one
// list compute the same. No two members differ by more than one shard. members are sorted and without doubles.
//
// Each member has room for ⌊n/m⌋ shards, and the n mod m members with the smallest hashes for one more. All pairs of a
// shard and a member, in the order of their hashes: a pair is taken if the shard is free and the member has room. So a
// change of the list moves few shards beyond those that must move.
//
// All pairs are too many to be sorted. The same comes of it if each shard asks the members in the order of its pairs,
// and a member without room gives up its last pair, whose shard asks on (Gale and Shapley): the outcome does not depend
// on who asks first.
func assign(members []string, n int) []int {
	a := newAssignment(members, n)
	for shard := range n {
		for p, full := a.next(shard, 0), true; full && p.member >= 0; {
			if p, full = a.take(p); full {
				p = a.next(p.shard, p.hash+1)
			}
		}
	}
	owners := make([]int, n)
	for shard := range owners {
		owners[shard] = -1
	}
	for m, taken := range a.taken {
		for _, p := range taken {
			owners[p.shard] = m
		}
	}
	return owners
}

// pair is a shard, and a member that may have it.
type pair struct {
	hash          uint64
	shard, member int
}

type assignment struct {
	hashes []uint64 // of each member
	room   []int    // for how many shards each member has room
	taken  [][]pair // of each member: a heap, the pair with the largest hash first
}

func newAssignment(members []string, n int) *assignment {
	a := &assignment{
		hashes: make([]uint64, len(members)), room: make([]int, len(members)), taken: make([][]pair, len(members)),
	}
	order := make([]int, len(members))
	for m, name := range members {
		a.hashes[m], order[m] = hash(name), m
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(a.hashes[x], a.hashes[y]) })
	for place, m := range order {
		a.room[m] = n / len(members)
		if place < n%len(members) {
			a.room[m]++
		}
	}
	return a
}

// next returns the first pair of a shard from a hash on; its member is -1 if there is none.
func (a *assignment) next(shard int, from uint64) pair {
	first := pair{math.MaxUint64, shard, -1}
	of := mix(uint64(shard) + 1) //nolint:gosec // not negative
	for m, h := range a.hashes {
		if h = mix(h ^ of); h >= from && (h < first.hash || first.member < 0) {
			first.hash, first.member = h, m
		}
	}
	return first
}

// take gives the pair's shard to its member. If that has no room, it returns the pair that is given up.
func (a *assignment) take(p pair) (out pair, full bool) {
	if a.room[p.member] == 0 {
		return p, true
	}
	taken := &a.taken[p.member]
	heap.Push((*byHash)(taken), p)
	if len(*taken) <= a.room[p.member] {
		return pair{}, false
	}
	return heap.Pop((*byHash)(taken)).(pair), true
}

// byHash is a heap with the largest hash first.
type byHash []pair

func (b byHash) Len() int           { return len(b) }
func (b byHash) Less(i, j int) bool { return b[i].hash > b[j].hash }
func (b byHash) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *byHash) Push(p any)        { *b = append(*b, p.(pair)) }
func (b *byHash) Pop() any {
	last := len(*b) - 1
	p := (*b)[last]
	*b = (*b)[:last]
	return p
}
