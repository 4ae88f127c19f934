package shard

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/member"
)

const (
	defaultSettle = 3 * time.Second

	// maxSettle bounds Options.Settle: a larger one is meant in another unit.
	maxSettle = time.Hour

	// longestSettle is how many times Options.Settle a member waits while others go on joining.
	longestSettle = 10
)

// settling is what a member knows of the names in its group: which have settled, and so are assigned shards. A name
// that joins settles when no other has joined for a while, or after ten times as long.
//
// Each member settles by its own clock what it has seen itself, and all come to the same: they see one list. A member
// that has just joined does not know since when the others are there, and need not: they joined before it, so they
// settle no later, and until it has settled itself it wants no shard.
type settling struct {
	after time.Duration        // Options.Settle; negative: at once
	known map[string]time.Time // the names that are there; those that have not settled since when
	last  time.Time            // when the latest name joined
	taken bool                 // a name that has settled takes shards: it is not out of service
	timer *time.Timer          // fires when the next one settles
}

// newSettling begins with the group as it was before this member joined. All names of it count as settled. So a process
// that is expected back under its name, as by Rejoin, does not wait.
func newSettling(after time.Duration, before member.Group) *settling {
	s := &settling{after: after, known: make(map[string]time.Time), timer: time.NewTimer(maxSettle)}
	s.timer.Stop()
	for name := range namesOf(before) {
		s.known[name] = time.Time{}
	}
	s.taken = s.takes(before)
	return s
}

// settled returns a group without the members that have not settled, and sets the timer for the next of them.
func (s *settling) settled(group member.Group) member.Group {
	now := time.Now()
	s.update(group, now)
	s.timer.Stop()
	var next time.Time
	for _, since := range s.known {
		if at := s.when(since); !since.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() {
		return group
	}
	s.timer.Reset(next.Sub(now))
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
	// When the last one that had settled goes, or is taken out of service, its shards have no owner. Those that are there
	// take them: nothing else moves.
	alone := s.taken && !s.takes(group)
	for name, since := range s.known {
		if s.after < 0 || alone || !now.Before(s.when(since)) {
			s.known[name] = time.Time{}
		}
	}
	s.taken = s.takes(group)
}

// takes reports whether shards can be assigned to a name that has settled.
func (s *settling) takes(group member.Group) bool {
	return slices.ContainsFunc(candidates(group), func(c candidate) bool { return s.known[c.name].IsZero() })
}

// when returns when a name settles that has joined at a time, if no other joins.
func (s *settling) when(since time.Time) time.Time {
	quiet, longest := s.last.Add(s.after), since.Add(longestSettle*s.after)
	if longest.Before(quiet) {
		return longest
	}
	return quiet
}

// namesOf returns the names of a group. One that is out of service settles, too: it waits no more when it is back.
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

// again ranges over groups, and over the latest one again when another of its names has settled.
func (s *settling) again(ctx context.Context, groups iter.Seq2[member.Group, error]) iter.Seq2[member.Group, error] {
	type told struct {
		group member.Group
		err   error
	}
	return func(yield func(member.Group, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		all, latest := make(chan told), told{}
		defer func() {
			s.timer.Stop()
			cancel()
			for range all { // until the goroutine has ended
			}
		}()
		go func() { // joined above
			defer close(all)
			for group, err := range groups {
				select {
				case all <- told{group, err}:
				case <-ctx.Done():
					return
				}
			}
		}()
		for open := true; ; {
			select {
			case latest, open = <-all:
			case <-s.timer.C:
			}
			if !open || !yield(latest.group, latest.err) {
				return
			}
		}
	}
}
