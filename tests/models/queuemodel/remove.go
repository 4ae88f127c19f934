package queuemodel

// How an entry is deleted before its lease ends, and hand-off to the next goroutine of the line.

// mayRemove reports whether an entry that never held may be deleted now. To the attempts behind, a
// deletion means that no revoked holder was ahead. So it must not happen while the attempt itself
// would have to wait for the lock delay in this queue. Each entry of a set is judged by itself.
func (m *model) mayRemove(s *state, i, k int8) bool {
	p := s.place(i, k)
	switch {
	case m.broken == removeAtOnce, m.broken == closeRemovesAtOnce && s.sessions[m.attempts[i].session].closing,
		m.broken == setIsRemovedAtOnce && len(m.members[i]) > 1:
		return true
	case p.ahead.created == 0:
		return !p.delay.running || m.broken == removeInDelay
	}
	return s.standing(p.ahead) != nil // compared in the Txn that deletes
}

// leavingSteps are the steps of an attempt that removes its entry at place k. It does not compare the others: it may
// have removed them.
func (m *model) leavingSteps(s *state, i, k int8) {
	p, own := *s.place(i, k), s.own(i, k)
	if s.standing(own) == nil {
		if s.leases[s.attempts[i].lease].alive { // otherwise the session finds out
			m.removed(m.step(s, "finds the entry gone that it is to remove", i), i, k)
		}
		return
	}
	switch {
	case p.ahead.created == 0:
	case s.standing(p.ahead) == nil && m.broken == leavingComparesOthers && !m.allStand(s, i):
		m.removed(m.step(s, "finds another entry of its set gone, and forgets its own", i), i, k)
	case s.standing(p.ahead) == nil:
		m.judge(s, i, k)
	case (m.unknown || k != 0) && p.seen < s.now:
		m.step(s, "sees that its entry ahead stands", i).place(i, k).seen = s.now
	}
	switch {
	case m.broken == removeByAnEarlierRead && s.standing(p.ahead) != nil:
		m.step(s, "reads that its entry ahead stands, to delete its entry after that", i).place(i, k).ahead = version{}
	case m.mayRemove(s, i, k):
		t := m.step(s, "removes its entry", i)
		t.deleteEntry(own)
		m.removed(t, i, k)
	case m.broken == removeAfterDelay && p.ahead.created != 0 && !p.delay.running:
		t := m.step(s, "finds the entry ahead gone, and removes its own after a delay whatever stands ahead", i)
		t.place(i, k).ahead = version{}
		m.startDelay(t, &t.place(i, k).delay)
	}
}

// removed clears a place. An attempt that has removed all of its entries ends.
func (m *model) removed(s *state, i, k int8) {
	a := &s.attempts[i]
	*s.place(i, k) = place{}
	if a.left == [maxMembers]place{} {
		a.leftTry = 0
	}
	if a.stage == removing && a.places == [maxMembers]place{} {
		m.end(s, i)
	}
}

// remove deletes all entries of an attempt in one Txn, by their create revisions, and ends it.
func (m *model) remove(s *state, i int8) {
	s.now++
	for k := range m.members[i] {
		s.deleteNow(s.own(i, int8(k)))
	}
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
			t.place(i, 0).delay = delay{}
		}
		if s.leases[a.lease].alive && s.standing(s.own(i, 0)) != nil && (m.mayRemove(s, i, 0) || m.broken == handOffAtOnce) {
			t := m.step(s, "gives up, and the same Txn queues the next goroutine", i)
			m.next(t, i)
			t.now++
			t.deleteNow(s.own(i, 0))
			own := t.putEntry(name{i, t.attempts[i].try, 0}, a.lease)
			m.placed(t, i, own.created, own.created)
			if m.broken != handOffForgetsReaders {
				t.place(i, 0).others |= a.places[0].others
			}
		}
	case a.stage == holding && !s.sessions[m.attempts[i].session].closing:
		t := m.step(s, "releases, and the same Txn is to queue the next goroutine", i)
		m.next(t, i)
		t.attempts[i].replaces = a.places[0].created
		t.send(i)
	}
}

// next makes the next goroutine of the line the attempt. Its own entry is not put yet.
func (m *model) next(s *state, i int8) {
	m.passToSweeper(s, i)
	a := &s.attempts[i]
	a.try++
	a.handedOn = true
	a.looksAgain = false
	a.places[0], a.unanswered, a.gate = place{}, 0, s.sessions[m.attempts[i].session].gate
}
