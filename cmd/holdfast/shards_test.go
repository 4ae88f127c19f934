package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/shard"
)

func TestTableOfShards(t *testing.T) {
	now := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	long := "orders-" + strings.Repeat("x", 60) + "-0"
	s := shards{
		name: "orders",
		owners: shard.Owners{Owners: []shard.Owner{
			{Member: long, Key: "0", Since: now.Add(-2 * time.Minute)}, {Member: "b\x1b[2J", Key: "1"}, {}, {Key: "3"},
		}},
		group: member.Group{
			Members: []member.Info{
				{Name: "b\x1b[2J", Retiring: true}, {Name: "joins", Settle: 3 * time.Second, Joined: now.Add(-time.Second)},
				{Name: long}, {Name: long},
			},
			Absent: []member.Info{{Name: "a"}},
		},
	}
	assigned := shard.Assigned(s.group, 4)
	lines := s.describe(now, 80)
	want := []string{
		"shard orders: 4 shards, 1 without an owner", "  member      0 owned  a, absent, expected back",
		`  member      1 owned  "b\x1b[2J", retiring`, "  member      0 owned  joins, has not settled",
		"  member      1 owned  " + long + ", 2 processes have this name", "",
		" SHARD      FOR  GOES TO                   OWNER",
	}
	if !slices.Equal(lines[:len(want)], want) {
		t.Errorf("%q, want %q", lines[:len(want)], want)
	}
	for index, owner := range []string{long, `"b\x1b[2J"`, "-", "another"} {
		fields := strings.Fields(lines[len(want)+index])
		to := clean(assigned[index], 24)
		if assigned[index] == owner {
			to = "-"
		}
		if fields[2] != to || fields[3] != owner {
			t.Errorf("%q, want it to go from %s to %s", fields, owner, to)
		}
	}
	if age := strings.Fields(lines[len(want)])[1]; age != "2m00s" {
		t.Errorf("owned for %s", age)
	}
	if lines := s.describe(now.Add(2*time.Second), 80); !slices.Contains(lines, "  member      0 owned  joins") {
		t.Errorf("2 s later: %q", lines)
	}
	s.owners.Owners[2] = shard.Owner{Member: "joins", Key: "2"} // its clock is ahead
	if lines := s.describe(now, 80); !slices.Contains(lines, "  member      1 owned  joins") {
		t.Errorf("it owns a shard: %q", lines)
	}
	s.group, s.unknown = member.Group{}, errors.New("refused")
	if lines := s.describe(now, 0); !strings.Contains(strings.Join(lines, "\n"), "members not known: refused") ||
		!strings.Contains(lines[len(lines)-1], " - ") {
		t.Errorf("%q", lines)
	}
	if j := s.asJSON(); j.Members != nil || j.LeftOver > 0 { // which would alarm
		t.Errorf("%+v", j)
	}
}

func TestMovesOfShards(t *testing.T) {
	a, b := shard.Owner{Member: "a", Key: "x", Revision: 1}, shard.Owner{Member: "b", Key: "y", Revision: 2}
	told := a
	told.Since = time.Now()
	before := shard.Owners{Owners: []shard.Owner{a, a, a, {}}}
	now := shard.Owners{Revision: 7, Owners: []shard.Owner{told, b, {}, b}}
	var lines []string
	var h history
	if first := h.moves(before); len(first) != 3 || moveLine(first[0], time.Time{}) !=
		"0001-01-01T00:00:00Z  owned     shard 0  by a" {
		t.Errorf("%+v", first)
	}
	then := shard.Owners{Revision: 8, Owners: []shard.Owner{told, b, b, b}}
	for _, m := range append(h.moves(now), h.moves(then)...) {
		if m.At != 7 && m.At != 8 {
			t.Errorf("%+v", m)
		}
		_, line, _ := strings.Cut(moveLine(m, time.Now()), "  ")
		lines = append(lines, line)
	}
	want := []string{
		"owned     shard 1  by b, before by a", "unowned   shard 2, before by a", "owned     shard 3  by b",
		"owned     shard 2  by b, before by a",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
}
