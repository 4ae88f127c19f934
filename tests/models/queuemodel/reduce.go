package queuemodel

import (
	"cmp"
	"slices"
)

// reduce makes states equal that differ in nothing that can still matter: it
// forgets deleted entries that no read can see, numbers the revisions again, and
// orders the copies.
//
//go:norace
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
	if s.copyCount > 1 {
		slices.SortFunc(s.copies[:s.copyCount], func(a, b enqueueCopy) int { return cmp.Compare(a.order(), b.order()) })
	}

	if !m.modes && !m.unknown && !m.several {
		for i := range s.leases {
			s.leases[i].gone = 0 // no attempt asks when a session key went
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

	m.findRevisions(s)
	var used [128]bool
	for _, r := range m.refs {
		used[*r] = true
	}
	var number [128]revision
	last := revision(0)
	for r := 1; r <= int(s.now); r++ {
		if used[r] {
			last++
			number[r] = last
		}
	}
	for _, r := range m.refs {
		*r = number[*r]
	}
	s.now = last
}

// canBeRead reports whether a read of the past can see a deleted entry: one that stood ahead of an
// entry whose place is not judged yet.
//
//go:norace
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

// findRevisions makes refs point to all revisions of a state that are not 0.
//
//go:norace
func (m *model) findRevisions(s *state) {
	m.refs = m.refs[:0]
	for i := range s.entryCount {
		m.ref(&s.entries[i].created)
		m.ref(&s.entries[i].deleted)
	}
	for i := range s.copyCount {
		c := &s.copies[i]
		m.ref(&c.gate)
		m.ref(&c.replaces)
		m.ref(&c.created)
	}
	for i := range m.attempts {
		a := &s.attempts[i]
		m.ref(&a.gate)
		m.ref(&a.unanswered)
		m.ref(&a.replaces)
		for k := range a.places {
			m.refPlace(&a.places[k])
			m.refPlace(&a.left[k])
		}
	}
	for i := range m.sessions {
		m.ref(&s.sessions[i].gate)
	}
	for i := range s.leases { // of others, too: see alone
		m.ref(&s.leases[i].key)
		m.ref(&s.leases[i].gone)
	}
}

//go:norace
func (m *model) ref(r *revision) {
	if *r != 0 {
		m.refs = append(m.refs, r)
	}
}

//go:norace
func (m *model) refPlace(p *place) {
	if p.created != 0 {
		m.ref(&p.created)
		m.ref(&p.ahead.created)
		m.ref(&p.seen)
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
