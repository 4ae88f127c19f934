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
		for try, q := range a.suspects {
			wanted = wanted || q.doubt == copyMayArrive
			if q.doubt > copyMayArrive {
				m.sweep(s, int8(i), int8(try))
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
		c.gate = s.now
	}
	for i := range m.attempts {
		if m.attempts[i].session != n {
			continue
		}
		a := &s.attempts[i]
		a.refused = a.refused || a.stage == enqueuing
		for k := range a.suspects {
			if a.suspects[k].doubt == copyMayArrive {
				a.suspects[k].doubt = entryMayStand
			}
		}
	}
}

// sweep reads the entry of a suspect, and deletes it by its create revision when that cannot let a
// waiter hold too early.
func (m *model) sweep(s *state, i, try int8) {
	q := s.attempts[i].suspects[try]
	e := s.named(i, try)
	if e == nil || e.created == s.attempts[i].replaces || e.kept != notKept && m.broken != keptIsSwept {
		m.step(s, "is cleared: nothing of it exists", i).attempts[i].suspects[try] = suspect{}
		return
	}
	now, then := m.nearest(s, e, s.now), m.nearest(s, e, e.created)
	// As in judgeUnknown: of the entries that stood ahead, has one gone with its lease?
	mustDelay := then != 0 && now == 0 && m.anyKeyMissing(s, m.leasesAhead(s, e, e.created))
	switch {
	case !mustDelay, m.broken == sweepAtOnce, q.doubt == entryMustDelay && q.delay.until == 0:
		t := m.step(s, "has an entry that the sweeper deletes", i)
		t.deleteEntry(e.created)
		t.attempts[i].suspects[try] = suspect{}
	case q.doubt == entryMayStand:
		t := m.step(s, "has an entry that the sweeper finds and will delete after a lock delay", i)
		m.startDelay(t, &t.attempts[i].suspects[try].delay)
		t.attempts[i].suspects[try].doubt = entryMustDelay
	}
}
