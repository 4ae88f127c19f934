package queuemodel

// keep leaves a copy of a request in the network.
func (s *state) keep(c requestCopy) {
	for n := range s.copies {
		if s.copies[n].kind == none {
			s.copies[n] = c
			return
		}
	}
	panic("there are more copies than a state has")
}

// copySteps: etcd carries out a copy.
//
//go:norace
func (m *model) copySteps(s *state, n int) {
	c := s.copies[n]
	if c.kind == none {
		return
	}
	if m.traced {
		m.tracedCopySteps(s, n)
		return
	}
	t := m.choice(s, "has a late copy carried out: "+c.kind.String(), c.by)
	t.copies[n] = requestCopy{}
	keys := m.keys[c.by][c.pair]
	switch c.kind {
	case none:
	case latePut:
		m.put(t, c.by, c.pair, c.after, c.r)
	case lateRelease:
		m.release(t, keys, c.r)
	case lateClear:
		m.clear(t, c.by, c.pair, c.r, &c.dead)
	case lateMove:
		m.move(t, keys, c.r)
	case lateDowngrade:
		m.downgrade(t, keys, c.r)
	}
}

func (k kind) String() string {
	return [...]string{"none", "a put", "a release", "a clear", "a move", "a downgrade"}[k]
}

// keySteps: administrators act on an entry, and one on a lease of its own expires with that.
//
//go:norace
func (m *model) keySteps(s *state, k int8) {
	q := &s.keys[k]
	if q.e == 0 {
		return
	}
	if q.kept && !(q.believed && m.believes(s, k, q.e)) {
		m.step(s, "has its entry end with the lease of its own", q.by).keys[k].e = 0
	}
	if s.left.deletes > 0 && (!q.believed || m.movedDeleted) {
		t := m.fault(s, &s.left.deletes, "has its entry deleted by hand", q.by)
		t.faulty, t.keys[k].e = true, 0
	}
	if s.left.notices > 0 && !q.written {
		t := m.fault(s, &s.left.notices, isAsked, q.by)
		t.keys[k].written = true
		if n := m.leaseOf(k); t.leases[n].s { // the bell: its session polls
			m.putS(t, n)
		}
	}
	if s.left.removals > 0 && !q.kept {
		m.remove(m.fault(s, &s.left.removals, "is removed: its entry is moved to another lease", q.by), k)
	}
}

// remove moves an entry to a lease that outlasts the time in which its owner is told, and deletes its claim.
func (m *model) remove(s *state, k int8) {
	q := &s.keys[k]
	q.believed = m.believes(s, k, q.e) && !m.rules.removalEndsAtOnce
	q.written, q.kept = true, true
	if !m.rules.removalLeavesC {
		q.c = 0
	}
	if m.rules.removalDeletes {
		q.e = 0
	}
}
