package queuemodel

// How an entry is deleted before its lease ends, and hand-off to the next goroutine of the line.

// mayRemove reports whether an entry that never held may be deleted now. To the attempts behind, a
// deletion means that no revoked holder was ahead. So it must not happen while the attempt itself
// would have to wait for the lock delay.
func (m *model) mayRemove(s *state, i int8) bool {
	p := s.attempts[i].place
	switch {
	case m.broken == removeAtOnce, m.broken == closeRemovesAtOnce && s.sessions[m.attempts[i].session].closing:
		return true
	case p.ahead == 0:
		return !p.delay.running || m.broken == removeInDelay
	}
	return s.standing(p.ahead) != nil // compared in the Txn that deletes
}

func (m *model) removeSteps(s *state, i int8) {
	p := s.attempts[i].place
	switch {
	case m.broken == removeByAnEarlierRead && s.standing(p.ahead) != nil:
		m.step(s, "reads that its entry ahead stands, to delete its entry after that", i).attempts[i].place.ahead = 0
	case m.mayRemove(s, i):
		m.remove(m.step(s, "removes its entry", i), i)
	case m.broken == removeAfterDelay && p.ahead != 0 && !p.delay.running:
		t := m.step(s, "finds the entry ahead gone, and removes its own after a delay whatever stands ahead", i)
		t.attempts[i].place.ahead = 0
		m.startDelay(t, &t.attempts[i].place.delay)
	}
}

// remove deletes the attempt's entry by its create revision, and ends it.
func (m *model) remove(s *state, i int8) {
	s.deleteEntry(s.attempts[i].place.created)
	m.end(s, i)
}

// handOffSteps are the steps of a head of a line that gives up or releases while another goroutine
// of its session waits behind it.
func (m *model) handOffSteps(s *state, i int8) {
	a := s.attempts[i]
	switch {
	case a.stage == waiting:
		t := m.step(s, "gives up and hands its place to the next goroutine", i)
		t.attempts[i].handedOn = true
		if m.broken == placeWithoutDelay {
			t.attempts[i].place.delay = delay{}
		}
		if s.leases[a.lease].alive && s.standing(a.place.created) != nil && (m.mayRemove(s, i) || m.broken == handOffAtOnce) {
			t := m.step(s, "gives up, and the same Txn queues the next goroutine", i)
			m.next(t, i)
			t.now++
			t.deleteNow(a.place.created)
			own := t.putEntry(i, t.attempts[i].try, a.lease)
			m.placed(t, i, own.created, m.nearest(t, own, t.now))
			if m.broken != handOffForgetsReaders {
				t.attempts[i].place.others |= a.place.others
			}
		}
	case a.stage == holding && !s.sessions[m.attempts[i].session].closing:
		t := m.step(s, "releases, and the same Txn is to queue the next goroutine", i)
		m.next(t, i)
		t.attempts[i].replaces = a.place.created
		t.send(i)
	}
}

// next makes the next goroutine of the line the attempt. Its own entry is not put yet.
func (m *model) next(s *state, i int8) {
	m.passToSweeper(s, i)
	a := &s.attempts[i]
	a.try++
	a.handedOn = true
	a.place, a.unanswered, a.gate = place{}, 0, s.sessions[m.attempts[i].session].gate
}
