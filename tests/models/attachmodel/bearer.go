package attachmodel

// bearerSteps finds the steps of a session with the entry, or with a ticket.
func (m *model) bearerSteps(s *state, i int8) {
	x := &s.sessions[i]
	switch {
	case x.told:
		if !x.l1 && !x.l2 && x.stage != idle {
			m.step(s, i, "ends with its leases", func(t *state) { t.sessions[i].stage = idle })
		}
		return
	case x.stage == idle:
		if s.ticket != 0 {
			m.choice(s, &s.left.attaches, i, "attaches", func(t *state) {
				t.sessions[i].stage, t.sessions[i].mod = attaching, t.ticket
			})
		}
	case x.stage == ready:
		m.step(s, i, "reads that it holds", func(t *state) { t.sessions[i].stage = holding })
	case x.stage == holding:
		m.holdingSteps(s, i)
	case x.stage == detaching:
		m.detachSteps(s, i)
	case x.stage == attaching:
		m.attachSteps(s, i)
	case x.stage == removing:
		m.step(s, i, "removes the entry", func(t *state) {
			t.deleteBoth()
			t.sessions[i].stage = idle
		})
	case x.stage == sweeping || x.stage == swept:
		m.sweepSteps(s, i)
	}
}

func (m *model) holdingSteps(s *state, i int8) {
	x := &s.sessions[i]
	if s.entry != i || s.mod != x.mod {
		m.step(s, i, "is told by a poll", func(t *state) { t.sessions[i].stage = removing })
		return
	}
	m.step(s, i, "releases", func(t *state) {
		t.deleteBoth()
		t.sessions[i].stage = idle
	})
	m.choice(s, &s.left.detaches, i, "is granted D, and detaches", func(t *state) {
		t.granted = true
		t.sessions[i].stage = detaching
	})
}

// detach is the Txn. It reports whether it was carried out.
func (m *model) detach(t *state, mod int8) bool {
	if t.entry == nowhere || !t.granted || t.mod != mod && m.broken != detachIgnoresMod {
		return false
	}
	t.entry = onTicket
	t.mod++
	if m.broken != detachLeavesClaim {
		t.claim = onTicket
	}
	return true
}

func (m *model) detachSteps(s *state, i int8) {
	x := s.sessions[i]
	m.step(s, i, "has its Detach answered", func(t *state) {
		switch {
		case m.detach(t, x.mod), t.entry == onTicket: // now, or by a copy whose reply was lost
			t.sessions[i].stage, t.ticket = idle, t.mod
		default:
			t.sessions[i].stage = removing
		}
	})
	m.choice(s, &s.left.lost, i, "has its Detach carried out, and the reply lost", func(t *state) { m.detach(t, x.mod) })
	m.keepCopy(s, late{detach, i, x.mod}, "has sent a Detach that is late")
	m.choice(s, nil, i, "gives up its Detach", func(t *state) { t.sessions[i].stage = removing })
}

// attach is the Txn. It reports whether it was carried out.
func (m *model) attach(t *state, i, mod int8) bool {
	x := &t.sessions[i]
	if t.entry == nowhere || !x.l1 || !x.l2 || t.mod != mod && m.broken != attachIgnoresMod {
		return false
	}
	t.entry, t.ticket = i, 0
	t.mod++
	if m.broken != attachLeavesClaim {
		t.claim = i
	}
	if m.broken != claimKeepsName {
		t.names = i
	}
	return true
}

func (m *model) attachSteps(s *state, i int8) {
	x := s.sessions[i]
	m.step(s, i, "has its Attach answered", func(t *state) {
		own := t.entry == i && t.mod == x.mod+1 && m.broken != lostIsRefused
		if m.attach(t, i, x.mod) || own {
			t.sessions[i].stage, t.sessions[i].mod = ready, t.mod
			return
		}
		t.sessions[i].stage = idle // refused
	})
	m.choice(s, &s.left.lost, i, "has its Attach carried out, and the reply lost",
		func(t *state) { m.attach(t, i, x.mod) })
	m.keepCopy(s, late{attach, i, x.mod}, "has sent an Attach that is late")
	m.choice(s, nil, i, "gives up its Attach, and puts its session key again", func(t *state) {
		t.sessions[i].stage = sweeping
		for n := range t.copies {
			if c := &t.copies[n]; c.kind == attach && c.session == i && m.broken != attachIgnoresGate {
				*c = late{}
			}
		}
	})
}

// sweepSteps: the session removes what an Attach may have done that was given up.
func (m *model) sweepSteps(s *state, i int8) {
	if s.sessions[i].stage == sweeping {
		m.step(s, i, "reads the entry", func(t *state) {
			t.sessions[i].stage = idle
			if t.entry == i || t.entry != nowhere && m.broken == sweepAnywhere {
				t.sessions[i].stage = swept
			}
		})
		return
	}
	m.step(s, i, "deletes the entry that it has read", func(t *state) {
		t.deleteBoth()
		t.sessions[i].stage = idle
	})
}
