package queuemodel

// MinHold: a name stays taken for a while after its release. The entry is moved to a lease of its
// own, which nothing renews. So it stands when the session closes, and goes by itself.

// A keeping says what becomes of the entry of a hold that has ended.
type keeping int8

const (
	notKept keeping = iota
	kept            // it is to be moved; until then it stands on the lease of its session
	moved           // it stands on a lease of its own
)

// keep ends a hold whose name stays taken. The next goroutine of the line queues behind the entry.
func (m *model) keep(s *state, i int8) {
	a, plan := &s.attempts[i], m.attempts[i]
	if e := s.standing(s.own(i, 0)); e != nil {
		e.kept = max(e.kept, kept)
	}
	if !plan.line || a.handedOn || a.try+1 == maxTries || s.sessions[plan.session].closing {
		m.end(s, i)
		return
	}
	try := a.try
	m.next(s, i)
	a.stage, a.queued, a.newcomerTo, a.behind = idle, false, 0, 0 // it queues like any newcomer
	if m.broken == keptKeyIsUsedAgain {
		a.try = try
	}
}

// keepSteps are the steps of an entry that is kept. Its session does not wait for the reply: a copy
// of the move may be carried out as long as the entry stands.
func (m *model) keepSteps(s *state, k int8) {
	e := s.entries[k]
	if e.kept == notKept || e.deleted != 0 {
		return
	}
	n := e.lease / 2
	lost := s.leases[e.lease].told && !s.sessions[n].closing
	if e.kept == kept && !e.moving {
		if s.leases[e.lease].alive {
			m.step(s, "has its entry moved to a lease of its own", e.name.attempt).entries[k].kept = moved
		}
		m.step(s, "has the move of its entry go unanswered", e.name.attempt).entries[k].moving = true
	}
	if e.moving {
		t := m.step(s, "hears nothing of the move of its entry any more", e.name.attempt)
		t.entries[k].moving = false
		if m.broken == unansweredLeaseIsRevoked && e.kept == moved {
			t.deleteEntry(e.version())
		}
		if e.kept == kept {
			m.step(s, "has a copy of the move carried out", e.name.attempt).entries[k].kept = moved
		}
	}
	switch {
	case e.kept == moved:
		m.endKept(m.step(s, "has its entry expire with the lease of its own", e.name.attempt), k)
	case !lost && !s.sessions[n].closing:
		m.endKept(m.step(s, "removes its entry: MinHold has passed before it was moved", e.name.attempt), k)
	}
}

// endKept deletes an entry whose time is over.
func (m *model) endKept(s *state, k int8) {
	e := &s.entries[k]
	was := e.kept
	e.kept, e.moving = notKept, false
	s.deleteEntry(e.version())
	if m.broken == delayByTheLeaseOfTheEntry {
		e.kept = was
	}
}
