package shard

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/member"
)

const (
	defaultSettle = 3 * time.Second

	// maxSettle bounds Options.Settle: a larger one is meant in another unit.
	maxSettle = member.MaxSettle

	// longestSettle is how many times Options.Settle a member waits while others go on joining.
	longestSettle = 10
)

// settling says which names of a group have settled, and so are assigned shards. A new name settles when no other has
// joined for a while, or after ten times as long.
//
//	0 s: a joins · 2 s: b joins · 5 s: Settle after b both settle, and take shards at once
//
// Each member goes by its own clock, and all come to the same, for they see one list. A member that has just joined
// does not know when the others joined, and need not: they joined before it, so they settle no later than it does.
type settling struct {
	after time.Duration        // Options.Settle; negative: at once
	known map[string]time.Time // by name: since when it settles; zero: it has settled
	last  time.Time            // when the latest name joined
	taken bool                 // a settled name is in service
	due   <-chan time.Time     // receives when the next one settles
}

// newSettling begins with the group as it was before this member joined. All its names count as settled. So a process
// does not wait if it is expected back under its name, as by Rejoin.
func newSettling(after time.Duration, before member.Group) *settling {
	return &settling{after: after, known: namesOf(before)}
}

// waits returns how long a name will settle when it joins; 0: not at all.
func (s *settling) waits(name string) time.Duration {
	if _, there := s.known[name]; there {
		return 0
	}
	return max(0, s.after)
}

// settled returns a group without the members that have not settled, and sets due for the next of them.
func (s *settling) settled(group member.Group) member.Group {
	now := time.Now()
	s.update(group, now)
	var next time.Time
	for _, since := range s.known {
		if at := s.when(since); !since.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return group
	}
	s.due = time.After(next.Sub(now))
	waits := func(m member.Info) bool { return !s.known[m.Name].IsZero() }
	group.Members = slices.DeleteFunc(slices.Clone(group.Members), waits)
	return group
}

// update notes who is there, and who has settled by now.
func (s *settling) update(group member.Group, now time.Time) {
	before := s.known
	s.known = namesOf(group)
	for name := range s.known {
		since, was := before[name]
		if !was {
			since, s.last = now, now
		}
		s.known[name] = since
	}
	// The last settled name has gone, or is out of service, so its shards have no owner. All that are there take them:
	// nothing else can move.
	alone := s.taken && !s.takes(group)
	for name, since := range s.known {
		if alone || !now.Before(s.when(since)) {
			s.known[name] = time.Time{}
		}
	}
	s.taken = s.takes(group)
}

// takes reports whether a settled name is in service.
func (s *settling) takes(group member.Group) bool {
	return slices.ContainsFunc(candidates(group), func(c candidate) bool { return s.known[c.name].IsZero() })
}

// when returns when a name settles, by the time it joined at, if no other joins.
func (s *settling) when(since time.Time) time.Time { return settles(since, s.last, s.after) }

// settles returns when a name settles that joined at since, if the latest name joined at last.
func settles(since, last time.Time, after time.Duration) time.Time {
	quiet, longest := last.Add(after), since.Add(longestSettle*after)
	if longest.Before(quiet) {
		return longest
	}
	return quiet
}

// Settling returns the names of the members that have not settled by now, sorted: they have joined, and take no shard
// yet (see Options.Settle). It judges by the clocks of the members and by yours, so show it to people and decide
// nothing by it. Two things it does not know: a member that has lost its lease settles again; and when the last settled
// member goes, the others settle at once.
func Settling(group member.Group, now time.Time) (all []string) {
	var waiting []member.Info // the oldest of each name, if it waits or has waited
	name := ""
	for _, m := range group.Members { // by name, and those of one name by age
		if m.Retiring || m.Name == name {
			continue
		}
		name = m.Name
		if m.Settle > 0 { // else its name was there when it joined, or it does not wait
			waiting = append(waiting, m)
		}
	}
	slices.SortFunc(waiting, func(a, b member.Info) int { return a.Joined.Compare(b.Joined) })
	for i, m := range waiting {
		last := m.Joined
		for _, next := range waiting[i+1:] {
			if !next.Joined.Before(settles(m.Joined, last, m.Settle)) { // m had settled
				break
			}
			last = next.Joined
		}
		if now.Before(settles(m.Joined, last, m.Settle)) {
			all = append(all, m.Name)
		}
	}
	slices.Sort(all)
	return all
}

// namesOf returns the names of a group, also those out of service: they settle meanwhile, and do not wait when they are
// back.
func namesOf(group member.Group) map[string]time.Time {
	names := make(map[string]time.Time, len(group.Members))
	for _, m := range group.Members {
		if !m.Retiring {
			names[m.Name] = time.Time{}
		}
	}
	for _, m := range group.Absent {
		names[m.Name] = time.Time{}
	}
	return names
}
