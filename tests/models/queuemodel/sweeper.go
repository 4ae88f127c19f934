package queuemodel

// The sweeper: one per session, for what is not known of ended attempts. Nothing else puts the
// session key while that exists.

func (m *model) sweepSteps(s *state, n int8) {
	c := s.sessions[n]
	wanted, owed := m.alwaysSuspects, false
	for i := range m.attempts {
		if m.attempts[i].session != n {
			continue
		}
		a := s.attempts[i]
		owed = owed || a.refused
		for try := range a.suspects {
			for k, q := range a.suspects[try] {
				wanted = wanted || q.doubt == copyMayArrive
				if q.doubt > copyMayArrive {
					m.sweep(s, name{int8(i), int8(try), int8(k)})
				}
			}
		}
	}
	// Each put makes etcd refuse the enqueues that are in flight. So it waits until those that the
	// last one refused have their place.
	if wanted && !c.keyMissing && (!owed || m.broken == putAtAnyTime) {
		m.moveGate(m.step(s, "puts its session key to stop what was sent before", n), n)
	}
}

// moveGate puts the session key: no copy that compares the former gate can still be carried out.
func (m *model) moveGate(s *state, n int8) {
	c := &s.sessions[n]
	if m.broken != sweepWithoutPut {
		s.putSessionKey(c.lease)
		if !m.lateGate {
			c.gate = s.now
		}
	}
	for i := range m.attempts {
		if a := &s.attempts[i]; m.attempts[i].session == n {
			a.refused = a.refused || a.stage == enqueuing
		}
	}
	m.stopCopies(s, n)
}

// stopCopies is for the suspects of a session whose key was put after their last copies were sent.
func (m *model) stopCopies(s *state, n int8) {
	for i := range m.attempts {
		if m.attempts[i].session != n {
			continue
		}
		a := &s.attempts[i]
		for try := range a.suspects {
			for k := range a.suspects[try] {
				if q := &a.suspects[try][k]; q.doubt == copyMayArrive {
					q.doubt = entryMayStand
				}
			}
		}
	}
}

// sweep reads the entry of a suspect, and deletes it by its create revision when that cannot let a
// waiter hold too early. It leaves the entries that an attempt accounts for.
func (m *model) sweep(s *state, n name) {
	a := &s.attempts[n.attempt]
	q := a.suspects[n.try][n.member]
	e := s.named(n)
	if e == nil || e.created == a.replaces || m.isLeaving(s, e) || e.kept != notKept && m.broken != keptIsSwept {
		m.step(s, "is cleared: nothing of it exists", n.attempt).setSuspect(n, suspect{})
		return
	}
	now, then := m.nearest(s, e.version(), s.now), m.nearest(s, e.version(), e.created)
	// As in judgeUnknown: of the entries that stood ahead, has one gone with its lease?
	mustDelay := then.created != 0 && now.created == 0 && m.anyKeyMissing(s, m.leasesAhead(s, e.version(), e.created))
	switch {
	case !mustDelay, m.broken == sweepAtOnce, q.doubt == entryMustDelay && q.delay.until == 0:
		t := m.step(s, "has an entry that the sweeper deletes", n.attempt)
		t.deleteEntry(e.version())
		t.setSuspect(n, suspect{})
	case q.doubt == entryMayStand:
		t := m.step(s, "has an entry that the sweeper finds and will delete after a lock delay", n.attempt)
		q.doubt = entryMustDelay
		m.startDelay(t, &q.delay)
		t.setSuspect(n, q)
	}
}

func (s *state) setSuspect(n name, q suspect) { s.attempts[n.attempt].suspects[n.try][n.member] = q }

// isLeaving reports whether an entry is of an earlier try of its attempt and is still to be removed.
func (m *model) isLeaving(s *state, e *entry) bool {
	a := &s.attempts[e.name.attempt]
	return e.name.try == a.leftTry && a.left[e.name.member].created == e.created
}
