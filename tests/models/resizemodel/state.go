package resizemodel

import "slices"

const (
	maxMembers = 3
	maxShards  = 2 // and as many tenants
)

// A revision of etcd's store; 0 means none. Each state numbers its revisions again, so they are in order, and small.
type revision = int8

// A phase is what the keys of the number say.
type phase int8

const (
	old    phase = iota // the old number
	step                // the same, and that it changes
	newest              // the new number
)

// A number is what stands in etcd of the number of shards: a phase, and which step it is.
type number struct {
	phase phase
	began revision // of the step; 0 in the other phases
}

// A state is all of etcd, of the members, and of the writes between them. It is copied by assignment, and compared by
// ==.
type state struct {
	number  number
	keys    [maxMembers][maxShards]key // by shard
	members [maxMembers]member
	mark    [maxShards]revision // the largest token that was seen, by what the mark names
	wrote   [maxShards]revision // the largest token that has written to a tenant
	late    write
	left    budget
}

// A key is an entry and its claim, by create revisions.
type key struct{ entry, claim revision }

// A member goes by one number at a time, and has one hold of each unit of it.
type member struct {
	knows     number
	holds     [maxShards]hold
	lost      bool // etcd has revoked its lease, and it does not know
	confirmed bool // under this lease; only where that rule is broken
}

type hold struct {
	stage stage
	r     revision // of its entries: its token
}

type stage int8

const (
	idle    stage = iota
	queued        // its entries stand
	first         // a look has shown that nothing is ahead
	holding       // its function runs
)

// A write is one that is late.
type write struct {
	token  revision // 0: there is none
	tenant int8
	mark   int8
}

// A budget says how often each of these may still happen.
type budget struct{ revokes, lates, departs int8 }

// next returns the revision of a put that is made now.
func (s *state) next() (r revision) {
	for _, at := range s.revisions() {
		r = max(r, *at)
	}
	return r + 1
}

// revisions returns all revisions of a state.
func (s *state) revisions() []*revision {
	all := []*revision{&s.number.began, &s.late.token}
	for i := range s.members {
		all = append(all, &s.members[i].knows.began)
		for k := range maxShards {
			all = append(all, &s.keys[i][k].entry, &s.keys[i][k].claim, &s.members[i].holds[k].r)
		}
	}
	for k := range maxShards {
		all = append(all, &s.mark[k], &s.wrote[k])
	}
	return all
}

// reduce numbers the revisions again: states that differ in nothing else are equal.
func (s *state) reduce() {
	refs, used := s.revisions(), []revision{0}
	for _, at := range refs {
		used = append(used, *at)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	for _, at := range refs {
		n, _ := slices.BinarySearch(used, *at)
		*at = revision(n) //nolint:gosec // a few
	}
}
