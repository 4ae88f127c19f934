package shard

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/member"
)

// here is what the calls of Run that go on have in this process.
type here struct {
	members set[*member.Member]
	shards  set[*Shard] // that are held
}

// set is a set for any number of goroutines.
type set[T comparable] struct {
	mu  sync.Mutex // protects all
	all map[T]struct{}
}

func (s *set[T]) add(one T) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[T]struct{})
	}
	s.all[one] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, one)
	}
}

func (s *set[T]) now() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}

// Owned returns the shards that this process owns now, by index, without a request: those whose Check is nil, of each
// Run of s and of what With has made of it. None is owned before Run, nor while the session is suspended. Between two
// calls any of them may be lost: what must not happen twice is done by the function, and fenced.
func (s *Shards) Owned() []*Shard {
	if s == nil || s.here == nil {
		return nil
	}
	owned := s.here.shards.now()
	owned = slices.DeleteFunc(owned, func(each *Shard) bool { return each.Check() != nil })
	slices.SortFunc(owned, func(a, b *Shard) int { return cmp.Compare(a.index, b.index) })
	return owned
}
