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
	shards  set[*Shard] // held now
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

// Owned returns the shards this process owns now, by index, without a request: their Check is nil. They are those of
// each Run of s and of its copies by With. None is owned before Run, nor while the session is suspended. Any of them
// may be lost at any moment: do in the function, behind a fence, what must not happen twice.
func (s *Shards) Owned() []*Shard {
	if s == nil || s.here == nil {
		return nil
	}
	owned := s.here.shards.now()
	owned = slices.DeleteFunc(owned, func(each *Shard) bool { return each.Check() != nil })
	slices.SortFunc(owned, func(a, b *Shard) int { return cmp.Compare(a.index, b.index) })
	return owned
}
