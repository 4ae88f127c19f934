package queuemodel

// The sweeper: one per session, for what ended attempts have left in doubt. It
// is the only one that puts the session key while that stands.

func (m *model) sweepSteps(s *state, n int8) {
	c := s.sessions[n]
	wanted, owed := m.alwaysInQuestion, false
	for i := range m.attempts {
		if m.attempts[i].session != n {
			continue
		}
		a := s.attempts[i]
		owed = owed || a.refused
		for try, q := range a.questions {
			wanted = wanted || q.doubt == copyMayCome
			if q.doubt > copyMayCome {
				m.sweep(s, int8(i), int8(try))
			}
		}
	}
	// Each put has etcd refuse the enqueues that are under way. So it waits until
	// those that the last one refused have got their place.
	if wanted && !c.keyMissing && (!owed || m.broken == putAtAnyTime) {
		m.closeGate(m.step(s, "puts its session key to stop what was sent before", n), n)
	}
}

// closeGate: no copy sent at the former gate can be carried out any more.
func (m *model) closeGate(s *state, n int8) {
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
		for k := range a.questions {
			if a.questions[k].doubt == copyMayCome {
				a.questions[k].doubt = entryMayStand
			}
		}
	}
}

// sweep reads one entry in question, and deletes it by its create revision when
// that cannot let a waiter in too early.
func (m *model) sweep(s *state, i, try int8) {
	q := s.attempts[i].questions[try]
	e := s.named(i, try)
	if e == nil || e.created == s.attempts[i].replaces {
		m.step(s, "is not in question any more: nothing of it stands", i).attempts[i].questions[try] = question{}
		return
	}
	now, then := m.near(s, e, s.now), m.near(s, e, e.created)
	// As judgeUnknown does: of those that stood ahead, has one gone with its lease?
	mustDelay := then != 0 && now == 0 && m.anyKeyMissing(s, m.leasesAhead(s, e, e.created))
	switch {
	case !mustDelay, m.broken == sweepAtOnce, q.doubt == entryMustDelay && q.delay.until == 0:
		t := m.step(s, "has an entry that the sweeper deletes", i)
		t.deleteEntry(e.created)
		t.attempts[i].questions[try] = question{}
	case q.doubt == entryMayStand:
		t := m.step(s, "has an entry that the sweeper finds, to be deleted after a lock delay", i)
		m.startDelay(t, &t.attempts[i].questions[try].delay)
		t.attempts[i].questions[try].doubt = entryMustDelay
	}
}
