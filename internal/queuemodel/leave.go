package queuemodel

// LEAVE: how an entry goes before its lease does, and hand-off to the next
// goroutine of the line.

// mayLeave tells whether an entry that never held may be deleted now. Those
// behind take a deletion in good order for "no revoked holder was ahead", so it
// must not happen while its own attempt would have to delay.
func (m *model) mayLeave(s *state, i int8) bool {
	p := s.attempts[i].place
	switch {
	case m.broken == leaveAtOnce, m.broken == closeLeavesAtOnce && s.sessions[m.attempts[i].session].closing:
		return true
	case p.ahead == 0:
		return !p.delay.running || m.broken == leaveInDelay
	}
	return s.standing(p.ahead) != nil // compared in the Txn that deletes
}

func (m *model) leaveSteps(s *state, i int8) {
	p := s.attempts[i].place
	switch {
	case m.broken == leaveByAnEarlierRead && s.standing(p.ahead) != nil:
		m.step(s, "reads that its predecessor stands, to delete its entry after that", i).attempts[i].place.ahead = 0
	case m.mayLeave(s, i):
		m.leave(m.step(s, "removes its entry", i), i)
	case m.broken == leaveAfterDelay && p.ahead != 0 && !p.delay.running:
		t := m.step(s, "finds its predecessor gone, and leaves after a delay whatever stands ahead", i)
		t.attempts[i].place.ahead = 0
		m.startDelay(t, &t.attempts[i].place.delay)
	}
}

// leave deletes the attempt's entry by its create revision, and ends it.
func (m *model) leave(s *state, i int8) {
	s.deleteEntry(s.attempts[i].place.created)
	m.end(s, i)
}

// handOffSteps: the head of a line gives up or releases while another goroutine
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
		if s.standing(a.place.created) != nil && (m.mayLeave(s, i) || m.broken == handOffAtOnce) {
			t := m.step(s, "gives up, and the same Txn queues the next goroutine", i)
			m.next(t, i)
			t.now++
			t.deleteNow(a.place.created)
			own := t.putEntry(i, t.attempts[i].try, a.lease)
			m.placed(t, i, own.created, m.near(t, own, t.now))
		}
	case a.stage == holding && !s.sessions[m.attempts[i].session].closing:
		t := m.step(s, "releases, and the same Txn is to queue the next goroutine", i)
		m.next(t, i)
		t.attempts[i].replaces = a.place.created
		t.send(i)
	}
}

// next makes the next goroutine of the line the attempt, with an entry of its own to come.
func (m *model) next(s *state, i int8) {
	m.ask(s, i)
	a := &s.attempts[i]
	a.try++
	a.handedOn = true
	a.place, a.unanswered, a.gate = place{}, 0, s.sessions[m.attempts[i].session].gate
}
