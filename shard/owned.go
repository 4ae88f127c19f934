package shard

import (
	"cmp"
	"slices"
	"sync"
)

// holds are the shards that calls of Run hold in this process. All copies of a Shards have one.
type holds struct {
	mu  sync.Mutex // protects all
	all map[*Shard]struct{}
}

func (h *holds) add(s *Shard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[*Shard]struct{})
	}
	h.all[s] = struct{}{}
}

func (h *holds) remove(s *Shard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, s)
}

// Owned returns the shards that this process owns now, by index, without a request: those whose Check is nil, of each
// Run of s and of what With has made of it. None is owned before Run, nor while the session is suspended. Between two
// calls any of them may be lost: what must not happen twice is done by the function, and fenced.
func (s *Shards) Owned() []*Shard {
	if s == nil || s.holds == nil {
		return nil
	}
	s.holds.mu.Lock()
	owned := make([]*Shard, 0, len(s.holds.all))
	for each := range s.holds.all {
		owned = append(owned, each)
	}
	s.holds.mu.Unlock()
	owned = slices.DeleteFunc(owned, func(each *Shard) bool { return each.Check() != nil })
	slices.SortFunc(owned, func(a, b *Shard) int { return cmp.Compare(a.index, b.index) })
	return owned
}
