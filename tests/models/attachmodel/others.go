package attachmodel

// leaseSteps finds what becomes of a session's leases.
func (m *model) leaseSteps(s *state, i int8) {
	x := &s.sessions[i]
	if x.told { // L2 first
		if x.l2 {
			m.step(s, i, "has L2 revoked", func(t *state) { t.endL2(i) })
		} else if x.l1 {
			m.step(s, i, "has L1 revoked", func(t *state) { t.endL1(i) })
		}
		return
	}
	if !x.l1 {
		m.step(s, i, "is told of its loss", func(t *state) { t.tell(i) })
		return
	}
	m.choice(s, &s.left.revokes, i, "has L1 revoked early", func(t *state) {
		t.faulty = true
		t.endL1(i)
	})
	m.choice(s, &s.left.closes, i, "closes", func(t *state) { t.tell(i) })
}

// tell ends what a session holds, or is about to hold.
func (s *state) tell(i int8) {
	x := &s.sessions[i]
	x.told = true
	if x.stage != idle {
		x.stage = removing
	}
}

func (s *state) endL1(i int8) {
	s.sessions[i].l1 = false
	if s.entry == i {
		s.entry = nowhere
	}
}

func (s *state) endL2(i int8) {
	s.sessions[i].l2 = false
	if s.claim == i {
		s.claim = nowhere
	}
}

// ticketSteps: D ends, by its time or because it was revoked, as by a kick, also by one that comes when nothing is on D
// any more. What is on it goes in one revision.
func (m *model) ticketSteps(s *state) {
	if !s.granted {
		return
	}
	m.step(s, onTicket, "D ends", func(t *state) {
		t.granted = false
		if t.entry == onTicket {
			t.entry = nowhere
		}
		if t.claim == onTicket {
			t.claim = nowhere
		}
	})
}

func (m *model) keepCopy(s *state, c late, what string) {
	if s.copies[1].kind != none {
		return
	}
	m.choice(s, &s.left.lates, c.session, what, func(t *state) { t.copies[1] = c })
}

// copySteps: etcd carries out a copy.
func (m *model) copySteps(s *state) {
	for n, c := range s.copies {
		if c.kind == none {
			continue
		}
		m.choice(s, nil, c.session, "has a late copy carried out", func(t *state) {
			t.copies[n] = late{}
			switch c.kind {
			case detach:
				m.detach(t, c.mod)
			case attach:
				m.attach(t, c.session, c.mod)
			case none:
			}
		})
	}
}

// handSteps: the entry is deleted by hand.
func (m *model) handSteps(s *state) {
	const admin = -1
	if s.entry != nowhere {
		m.choice(s, &s.left.deletes, admin, "deletes the entry by hand", func(t *state) {
			t.faulty, t.entry = true, nowhere
		})
	}
}

// waiterSteps: the one behind looks when the entry has gone.
func (m *model) waiterSteps(s *state) {
	const waits = -2
	w := &s.waiter
	switch {
	case w.holds || s.entry != nowhere:
	case s.claim == nowhere:
		m.step(s, waits, "holds", func(t *state) { t.waiter = waiter{holds: true} })
	case !w.delays || !w.without && !s.stands(s.names):
		m.step(s, waits, "sees a dead claim", func(t *state) {
			t.waiter.delays, t.waiter.without = true, !t.stands(t.names)
		})
	}
	if s.entry == nowhere && s.claim != nowhere && w.delays && m.over(s) {
		m.step(s, waits, "deletes the dead claim after its delay, and holds", func(t *state) {
			t.claim, t.waiter = nowhere, waiter{holds: true}
		})
	}
}

// over reports whether the delay for a dead claim may be over: LockDelay is, once the session whose key has gone has
// been told; ToldWithin, once the holder has polled.
func (m *model) over(s *state) bool {
	if s.waiter.without && s.sessions[s.names].told {
		return true
	}
	for i := range int8(sessions) {
		if m.believes(s, i) {
			return false
		}
	}
	return true
}
