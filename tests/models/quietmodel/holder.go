package quietmodel

// What the holder's session does: its watches, its ticks and its polls.

func (m *model) watchSteps(s *state, i int8) {
	e := s.members[i]
	reached := e.health == well || e.health == lagging
	if !e.hears() && reached && m.open(s) < m.slots {
		m.step(s, "a watch is created", func(t *state) {
			t.members[i].watch = created
			if m.broken == countsBeforeRead {
				t.members[i].watch = standing
			}
		})
	}
	if e.watch == created && m.answers(s, true) {
		m.step(s, "the read after the watch's creation is answered", func(t *state) {
			t.members[i].watch = standing
			t.told = t.revoked
			t.poll.rang = t.poll.rang || t.rung && m.broken != bellAtCreationIsLost
		})
	}
	if e.hears() && !m.steady {
		m.step(s, "a watch fails", func(t *state) {
			failed := none
			if m.broken == countsAfterFailure && e.watch == standing {
				failed = deaf
			}
			t.members[i].end(failed)
		})
	}
	if e.sendsRevoked && reached {
		m.step(s, "a watch tells of the revocation", func(t *state) { t.told = true })
	}
	if e.sendsRung && reached {
		m.step(s, "a watch tells of the bell", func(t *state) {
			t.members[i].sendsRung = false
			t.poll.rang = t.poll.rang || !(t.poll.sent && m.broken == bellInFlightIsLost)
		})
	}
	if m.broken == oneMemberForTwo && e.watch == standing && !e.twice && m.open(s) < m.slots {
		m.step(s, "another watch stands on the same member", func(t *state) { t.members[i].twice = true })
	}
	if m.broken == movesUnnoticed && e.watch == standing && !e.twice {
		for k := range m.members {
			if to := s.members[k]; k != i && to.watch == standing && !to.twice && to.health != hung {
				m.step(s, "a watch moves to a member that has one", func(t *state) {
					t.members[i].end(none)
					t.members[k].twice = true
				})
			}
		}
	}
}

// end ends the watch on a member, with the events that it has not delivered.
func (m *member) end(as watch) {
	m.watch, m.twice, m.sendsRevoked, m.sendsRung = as, false, false, false
}

func (m *model) holderSteps(s *state) {
	if !s.granted {
		m.grantSteps(s)
		return
	}
	if m.isDue(s) {
		m.step(s, "a tick, or the bell has rung", func(t *state) {
			c := &t.poll
			c.sent, c.age, c.next, c.compares = m.mustPoll(t), 0, interval, t.known
			c.rang = false
		})
	}
	if s.found {
		m.step(s, "the holder is told of the notice that a poll has found", func(t *state) { t.told = true })
	}
	switch c := s.poll; {
	case c.read:
		m.step(s, "a poll is answered", func(t *state) {
			c := &t.poll
			c.polled, c.since = true, c.age
			c.sent, c.read, c.age = false, false, 0
		})
	case c.sent && m.answers(s, true):
		m.step(s, "a poll is carried out", func(t *state) {
			m.sees(t)
			t.poll.read = true
		})
	case c.sent && m.failsFast:
		m.step(s, "a poll fails", func(t *state) { t.poll.sent, t.poll.age = false, 0 })
	}
}

// grantSteps make the holder hold, unless the look at its entry is too old for that: if an administrator has removed
// the entry right after it, the hold must have been asked about before the entry goes.
func (m *model) grantSteps(s *state) {
	if !s.looked {
		m.step(s, "the look by which the holder will hold is carried out", func(t *state) { t.looked = true })
		return
	}
	last := int8(interval + replies + 1)
	if m.broken == oldLookSuffices {
		last = interval + replies
	}
	if s.moved && s.leaves < last {
		m.step(s, "the holder looks at its entry again, and queues again", func(t *state) { t.told = true })
		return
	}
	age := s.age
	if m.broken == ageSinceGrant {
		age = 0
	}
	for next := interval - 1 - age; next <= interval-age; next++ {
		m.step(s, "the holder is granted", func(t *state) { t.granted, t.age, t.poll = true, 0, poll{next: max(0, next)} })
	}
}

// isDue reports whether the holder decides now whether it polls.
func (m *model) isDue(s *state) bool {
	c := &s.poll
	return s.granted && !c.sent && (c.next == 0 || c.rang && m.broken != bellWaits)
}

// asks reports whether the holder polls at a tick, or when the bell has rung.
func (m *model) mustPoll(s *state) bool {
	c := &s.poll
	switch {
	case m.broken == neverPolls:
		return false
	case c.rang || !m.watched(s):
		return true
	case !c.polled && m.broken != newHoldIsNotPolled:
		return true
	default:
		return c.since == slowPoll && m.broken != neverPollsAgain
	}
}
