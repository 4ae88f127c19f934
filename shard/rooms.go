package shard

import (
	"cmp"
	"math/bits"
	"slices"
)

// part is what a member, or a zone, has of the shards.
type part struct {
	hash         uint64
	weight, most int    // most at most
	room         int    // how many it is to have
	ideal        uint64 // the same before it is rounded, of [whole]

	index   int    // of a member
	members []part // of a zone
}

// rooms returns the zones, and how many of n shards each of them and each of its members is to have. If shards are left
// over, the last zone has those, and no members.
//
// Each zone has as many as any other, within one; the members of a zone by their weights, within one. One that takes
// fewer, by MaxShards, leaves the rest to the others. Zones count once each member names one: else the first process
// that does would be given half of all shards.
func rooms(members []candidate, n int) (zones []part) {
	named := !slices.ContainsFunc(members, func(c candidate) bool { return c.Zone == "" })
	at := make(map[string]int)
	for index, c := range members {
		name := ""
		if named {
			name = c.Zone
		}
		z, known := at[name]
		if !known {
			z, at[name] = len(zones), len(zones)
			zones = append(zones, part{hash: hash("zone " + name), weight: 1})
		}
		most := n
		if c.MaxShards > 0 {
			most = min(c.MaxShards, n)
		}
		m := part{hash: hash(c.name), weight: max(1, c.Weight), most: most, index: index}
		zones[z].most += most
		zones[z].members = append(zones[z].members, m)
	}
	left := divide(n, zones)
	for _, z := range zones {
		divide(z.room, z.members)
	}
	if left > 0 {
		zones = append(zones, part{hash: hash(""), room: left, ideal: ratio(left, n)})
	}
	return zones
}

// divide sets the room of each part: by its weight, and most at most. It returns what is left over. What remains after
// rounding down goes to those that lost the most by it, of several to the smallest hashes: so a small change of a
// weight changes few rooms.
func divide(n int, parts []part) (left int) {
	weights, free := 0, make([]*part, 0, len(parts))
	for i := range parts {
		free = append(free, &parts[i])
		weights += parts[i].weight
	}
	total := n
	for full := true; full; { // a part that is full leaves more to the others, so those that are full stay so
		rest, all := n, weights
		free = slices.DeleteFunc(free, func(p *part) bool {
			if rest*p.weight <= p.most*all {
				return false
			}
			p.room, p.ideal = p.most, ratio(p.most, total)
			n -= p.most
			weights -= p.weight
			return true
		})
		full = weights != all
	}
	left = n
	for _, p := range free {
		p.room, p.ideal = n*p.weight/weights, ratio(n*p.weight, total*weights)
		left -= p.room
	}
	slices.SortFunc(free, func(a, b *part) int {
		return cmp.Or(cmp.Compare(n*b.weight%weights, n*a.weight%weights), cmp.Compare(a.hash, b.hash))
	})
	for _, p := range free[:min(left, len(free))] {
		p.room++
		left--
	}
	return left
}

// whole is one, in the fixed-point numbers of ideal and ratio.
const whole = 1 << 30

// ratio returns a/b of [whole], and 1 at least. a is at most b.
func ratio(a, b int) uint64 {
	if a == 0 || b == 0 {
		return 1
	}
	hi, lo := bits.Mul64(uint64(a), whole) //nolint:gosec // not negative
	quotient, _ := bits.Div64(hi, lo, uint64(b))
	return max(1, quotient)
}
