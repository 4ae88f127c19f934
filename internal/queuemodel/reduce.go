package queuemodel

import (
	"cmp"
	"slices"
)

// reduce makes states equal that differ in nothing that can still matter: it
// forgets deleted entries that no read can see, numbers the revisions again, and
// orders the copies.
func (m *model) reduce(s *state) {
	kept := int8(0)
	for i := range s.entryCount {
		if e := s.entries[i]; e.deleted == 0 || m.canBeRead(s, &e) {
			s.entries[kept] = e
			kept++
		}
	}
	clear(s.entries[kept:s.entryCount])
	s.entryCount = kept
	copies := s.copies[:s.copyCount]
	slices.SortFunc(copies, func(a, b enqueueCopy) int { return cmp.Compare(a.order(), b.order()) })

	if !m.modes {
		for i := range s.leases {
			s.leases[i].gone = 0 // no attempt asks for the session keys of the others
		}
	}
	for i := range m.attempts {
		for k := range 2 * int8(maxMembers) {
			p := s.place(int8(i), k)
			if p.ahead.created == 0 {
				p.seen, p.others = 0, 0
			}
			if k == 0 && !m.unknown && m.removals+m.deletes == 0 {
				p.seen = 0 // judgeUnknown does not ask for it
			}
		}
	}

	var used [128]bool
	m.eachRevision(s, func(r *revision) { used[*r] = true })
	var number [128]revision
	last := revision(0)
	for r := 1; r < len(used); r++ {
		if used[r] {
			last++
			number[r] = last
		}
	}
	m.eachRevision(s, func(r *revision) { *r = number[*r] })
	s.now = last
}

// canBeRead reports whether a read of the past can see a deleted entry: one that stood ahead of an
// entry whose place is not judged yet.
func (m *model) canBeRead(s *state, e *entry) bool {
	for i := range int8(len(m.attempts)) {
		for k := range 2 * int8(maxMembers) {
			p := s.place(i, k)
			if p.ahead.created != 0 && p.created > e.created && m.exclude(s.own(i, k).name, e.name) {
				return true
			}
		}
	}
	for i := range s.entryCount {
		own := &s.entries[i]
		if own.deleted != 0 || own.created < e.created || !m.exclude(own.name, e.name) {
			continue
		}
		a := &s.attempts[own.name.attempt]
		if a.stage == enqueuing && a.try == own.name.try || a.suspects[own.name.try][own.name.member].doubt != none {
			return true
		}
	}
	for _, c := range s.copies[:s.copyCount] {
		if c.contended && c.created > e.created {
			return true
		}
	}
	return false
}

func (m *model) eachRevision(s *state, f func(*revision)) {
	for i := range s.entryCount {
		f(&s.entries[i].created)
		f(&s.entries[i].deleted)
	}
	for i := range s.copyCount {
		c := &s.copies[i]
		f(&c.gate)
		f(&c.replaces)
		f(&c.created)
	}
	for i := range m.attempts {
		a := &s.attempts[i]
		f(&a.gate)
		f(&a.unanswered)
		f(&a.replaces)
		for k := range a.places {
			a.places[k].eachRevision(f)
			a.left[k].eachRevision(f)
		}
	}
	for i := range m.sessions {
		f(&s.sessions[i].gate)
	}
	for i := range 2 * m.sessions {
		f(&s.leases[i].key)
		f(&s.leases[i].gone)
	}
}

// order is any total order, the same for equal copies only.
func (c enqueueCopy) order() (n uint64) {
	for _, part := range []revision{c.attempt, c.try, c.lease, c.gate, c.replaces, c.created} {
		n = n<<7 | uint64(part)
	}
	for _, flag := range []bool{c.awaited, c.answered, c.accepted, c.contended} {
		n <<= 1
		if flag {
			n |= 1
		}
	}
	return n
}

func (p *place) eachRevision(f func(*revision)) {
	if p.created != 0 {
		f(&p.created)
		f(&p.ahead.created)
		f(&p.seen)
	}
}
