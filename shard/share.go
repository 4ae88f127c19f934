package shard

import (
	"container/heap"
	"math"
	"math/bits"
)

// share returns the shards of each part: as many as it has room for. It goes through all pairs of a shard and a part,
// in their order, and takes a pair if the shard is free and the part has room. So a change of the parts moves few
// shards beyond those that must move. docs/decisions.md says how many, and why.
func share(shards []int, parts []part) [][]int {
	// All pairs are too many to be sorted. The outcome is the same if each shard asks the parts in the order of its
	// pairs, and a full part gives up its last pair, whose shard asks on (Gale and Shapley). Who asks first does not
	// matter.
	m := &matching{parts: parts, taken: make([][]pair, len(parts))}
	for _, shard := range shards {
		for p, full := m.next(pair{shard: shard}), true; full && p.part >= 0; {
			if p, full = m.take(p); full {
				p = m.next(p)
			}
		}
	}
	all := make([][]int, len(parts))
	for i, taken := range m.taken {
		for _, p := range taken {
			all[i] = append(all[i], p.shard)
		}
	}
	return all
}

// pair is a shard and a part.
type pair struct {
	order, hash uint64 // by the one, then by the other
	shard, part int
}

func (p pair) before(other pair) bool {
	return p.order < other.order || p.order == other.order && p.hash < other.hash
}

type matching struct {
	parts []part
	taken [][]pair // by part: a heap, the last pair first
}

// next returns the pair behind p, of p's shard. The zero pair is before all others. The last pair has part -1.
func (m *matching) next(p pair) pair {
	first := pair{math.MaxUint64, math.MaxUint64, p.shard, -1}
	of := mix(uint64(p.shard) + 1) //nolint:gosec // not negative
	for i := range m.parts {
		q := pair{hash: mix(m.parts[i].hash ^ of), shard: p.shard, part: i}
		// A part that is to have twice as many is the first choice twice as often. Else a small part would refuse most
		// shards that come, and those would move at each change.
		q.order = logOf(q.hash) << 24 / m.parts[i].ideal
		if !first.before(q) && p.before(q) {
			first = q
		}
	}
	return first
}

// take gives the pair's shard to its part. If the part is full, it returns the pair it gives up.
func (m *matching) take(p pair) (out pair, full bool) {
	taken := &m.taken[p.part]
	heap.Push((*lastFirst)(taken), p)
	if len(*taken) <= m.parts[p.part].room {
		return pair{}, false
	}
	return heap.Pop((*lastFirst)(taken)).(pair), true
}

// lastFirst is a heap. Its first element is the pair that comes last.
type lastFirst []pair

func (l lastFirst) Len() int           { return len(l) }
func (l lastFirst) Less(i, j int) bool { return l[j].before(l[i]) }
func (l lastFirst) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lastFirst) Push(p any)        { *l = append(*l, p.(pair)) }
func (l *lastFirst) Pop() any {
	last := len(*l) - 1
	p := (*l)[last]
	*l = (*l)[:last]
	return p
}

// logOf returns -log2(1-hash/2^64), with 32 bits behind the point: an exponentially distributed number. Of several,
// each divided by a weight, a number is the smallest as often as its weight is of all weights. It is computed with
// integers, so each processor computes the same.
func logOf(hash uint64) uint64 {
	x := ^hash
	zeros := bits.LeadingZeros64(x | 1)
	x = x << zeros << 1 // without the first bit
	i, rest := x>>56, x<<8>>32
	return uint64(zeros+1)<<32 - (logs[i] + (logs[i+1]-logs[i])*rest>>32) //nolint:gosec // 1 to 64
}

// logs has log2(1+i/256), with 32 bits behind the point.
var logs = func() (all [257]uint64) {
	for i := range uint64(256) {
		x := (256 + i) << 55 // 1 to 2, with 63 bits behind the point
		for bit := 31; bit >= 0; bit-- {
			hi, lo := bits.Mul64(x, x)
			if hi>>63 == 1 {
				all[i] |= 1 << bit
				x = hi
			} else {
				x = hi<<1 | lo>>63
			}
		}
	}
	all[256] = 1 << 32
	return all
}()
