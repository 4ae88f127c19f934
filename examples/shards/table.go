//go:build unix

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/shard"
)

// free is shown as the owner of a shard that has none.
const free = "-"

// ownersOf returns the owner of each shard, as it is shown.
func ownersOf(now shard.Owners) []string {
	owners := slices.Repeat([]string{free}, shards)
	for i := range now.Owners {
		owners[i] = cmp.Or(now.Owner(i).Member, free)
	}
	return owners
}

// even reports whether the members that run own all shards, evenly; if none runs, whether all shards are free.
func (s *story) even(owners []string) bool {
	var loads []int
	owned := 0
	for name := range s.running {
		n := count(owners, name)
		loads, owned = append(loads, n), owned+n
	}
	if len(loads) == 0 {
		return count(owners, free) == shards
	}
	return owned == shards && slices.Max(loads)-slices.Min(loads) <= 1
}

func count(owners []string, name string) (n int) {
	for _, owner := range owners {
		if owner == name {
			n++
		}
	}
	return n
}

// movedSince returns how many shards have gone from one owner to another.
func movedSince(before, after []string) (moved int) {
	for i := range before {
		if after[i] != before[i] && after[i] != free {
			moved++
		}
	}
	return moved
}

// table returns a line for each process, with the shards that it owns.
func (s *story) table(owners []string) (lines []string) {
	for _, name := range []string{"A", "B", "C", "D"} {
		line := name + "  not running  "
		if c := s.running[name]; c != nil {
			line = fmt.Sprintf("%s  process %-5d", name, c.PID())
		}
		for i, owner := range owners {
			if owner == name {
				line += fmt.Sprintf(" %2d", i)
			} else {
				line += "  ."
			}
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
