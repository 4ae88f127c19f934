package shard

import (
	"cmp"
	"math/bits"
	"slices"
)

// part is what a member, or a zone, has of the shards.
type part struct {
	hash   uint64
	weight int
	most   int    // its room at most
	room   int    // how many shards it is to have
	ideal  uint64 // room before it is rounded, of [whole]

	index   int    // of a member
	members []part // of a zone
}

// rooms returns the zones, and how many of n shards each zone and each of its members is to have. Zones have equally
// many, and the members of a zone as many as their weights say, within one shard. What a member leaves by its MaxShards
// goes to the others. A last zone, without members, has the shards that are left over.
func rooms(members []candidate, n int) (zones []part) {
	// Zones count once each member names one. Else the first process with a zone would be given half of all shards.
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
	return append(zones, part{hash: hash(""), room: left, ideal: ratio(left, n)})
}

// divide sets the room of each part: by its weight, and most at most. It returns how many shards are left over.
func divide(n int, parts []part) (left int) {
	weights, free := 0, make([]*part, 0, len(parts))
	for i := range parts {
		free = append(free, &parts[i])
		weights += parts[i].weight
	}
	total := n
	for full := true; full; { // a full part leaves more to the others, so a full part stays full
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
	// What remains after rounding down goes to the parts that lost the most by it, of several to the smallest hashes. So
	// a small change of a weight changes few rooms.
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

// ratio returns a/b of [whole], and 1 at least. a is at most b. b is 0 if there is no shard.
func ratio(a, b int) uint64 {
	hi, lo := bits.Mul64(uint64(a), whole) //nolint:gosec // not negative
	quotient, _ := bits.Div64(hi, lo, uint64(max(1, b)))
	return max(1, quotient)
}
