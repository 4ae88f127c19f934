package quietmodel

// What etcd, its members, an administrator and the waiter do.

func (m *model) etcdSteps(s *state) {
	commits := m.commits(s)
	if m.revokes && s.looked && !s.revoked && !s.noticed && commits {
		m.step(s, "etcd revokes the lease, though it was renewed", func(t *state) { t.revoked = true })
	}
	if m.mayKick(s) && commits {
		m.step(s, "an administrator puts a notice", m.putNotice)
	}
	if s.moved && s.leaves == 0 && !s.gone && commits {
		m.step(s, "the removed entry's lease ends", func(t *state) { t.gone = true })
	}
	switch {
	case m.outage > 0 && s.quorum == neverLost:
		m.step(s, "the quorum is lost", func(t *state) { t.quorum = lost })
	case s.quorum == lost && s.lasted == m.outage:
		m.step(s, "there is a quorum again", func(t *state) { t.quorum = regained })
	}
}

func (m *model) mayKick(s *state) bool {
	return m.kicks != never && !s.asked && !s.revoked && (m.kicks != ringingWatched || s.granted && m.watched(s))
}

// putNotice is a Kick or, where the scenario says so, a Remove: that grants the lease for the entry afterwards.
func (m *model) putNotice(s *state) {
	s.asked, s.noticed, s.rung = true, true, m.kicks >= ringing
	s.version++
	if m.removedIn > 0 {
		s.moved, s.leaves = true, m.removedIn
	}
}

func (m *model) memberSteps(s *state, i int8) {
	e := s.members[i]
	sick := int8(0)
	for _, other := range s.members[:m.members] {
		if other.health != well {
			sick++
		}
	}
	if e.health == well && sick < m.sick {
		for _, kind := range m.sickness {
			m.step(s, kind.becomes(), func(t *state) { t.members[i].health = kind })
		}
	}
	if e.health == hung {
		return
	}
	// While the quorum is lost, too: a member may have heard just before that an entry of the log was committed.
	if s.revoked && !e.revoked {
		m.step(s, "a member applies the revocation", func(t *state) {
			e := &t.members[i]
			e.revoked, e.sendsRevoked = true, e.hears()
		})
	}
	if s.rung && !e.rung {
		m.step(s, "a member applies the bell", func(t *state) {
			e := &t.members[i]
			e.rung, e.sendsRung = true, e.hears()
		})
	}
}

func (m member) hears() bool { return m.watch == created || m.watch == standing }

func (h health) becomes() string {
	return [kinds]string{lagging: "a member lags", hung: "a member hangs", cutOff: "a member is cut off"}[h]
}

func (m *model) waiterSteps(s *state) {
	w := s.waiter
	answered := m.answers(s, false)
	switch {
	case !s.looked:
	case w.stage == waiting && s.revoked && answered:
		m.step(s, "the waiter judges, and the lock delay begins", func(t *state) {
			t.waiter = waiter{stage: delaying, left: lockDelay}
		})
	case w.stage == waiting && s.gone && answered:
		m.step(s, "the waiter judges, and holds", func(t *state) { t.waiter = waiter{stage: holding} })
	case w.stage == delaying && w.left == 0 && m.broken == holdsWithoutRead:
		m.step(s, "the waiter holds", func(t *state) { t.waiter = waiter{stage: holding} })
	case w.stage == delaying && w.left == 0:
		m.step(s, "the waiter reads at the end of its delay", func(t *state) { t.waiter.stage = reading })
	case w.stage == reading && answered && w.late && !w.again && m.broken != lateReadSuffices:
		m.step(s, "the waiter's read is answered late, and another delay begins", func(t *state) {
			t.waiter = waiter{stage: delaying, left: lockDelay, again: true}
		})
	case w.stage == reading && answered:
		m.step(s, "the waiter's read is answered, and it holds", func(t *state) { t.waiter = waiter{stage: holding} })
	}
}
