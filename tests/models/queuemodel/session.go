package queuemodel

// leaseSteps finds the steps of a pair of leases: those of its session, and what may go wrong with it.
//
//go:norace
func (m *model) leaseSteps(s *state, n int8) {
	l := &s.leases[n]
	if !l.granted {
		if n%2 == 1 && s.leases[n-1].told && m.mayRegrant(&s.leases[n-1]) {
			m.step(s, "is granted to its session", n).leases[n] = twin{granted: true, l1: true, l2: true, s: true}
		}
		return
	}
	if l.told {
		m.endSteps(s, n)
		return
	}
	m.leaseFaults(s, n)
	if !l.l1 {
		m.tell(m.step(s, isTold, n), n)
	}
	if l.l1 && !l.l2 {
		m.step(s, "gets another L2 for later claims", n).leases[n].l2 = true
	}
	if l.l1 && (!l.s || m.traced) {
		t := m.step(s, putsKey, n)
		m.putS(t, n)
		if !m.rules.bellUnheard {
			m.poll(t, n)
		}
	}
	if s.left.closes > 0 && has(m.closing, n/2) {
		t := m.fault(s, &s.left.closes, "is given up by Close", n)
		t.leases[n].closing = true
		m.moveKept(t, n)
		m.tell(t, n)
		for i := range m.attempts {
			if a := &t.attempts[i]; m.attempts[i].session == n/2 && (a.stage == idle || a.stage == inLine) {
				a.stage = done
			}
		}
	}
}

// leaseFaults finds what may go wrong with a lease that its session uses.
//
//go:norace
func (m *model) leaseFaults(s *state, n int8) {
	l := &s.leases[n]
	if l.l1 && s.left.revokes > 0 {
		t := m.fault(s, &s.left.revokes, "has L1 revoked early", n)
		t.faulty = true
		m.endL1(t, n)
	}
	if l.l2 && s.left.revokesL2 > 0 {
		t := m.fault(s, &s.left.revokesL2, "has L2 revoked early", n)
		t.faulty = true
		m.endL2(t, n)
	}
	if l.l1 && l.s && s.left.keysDeleted > 0 {
		t := m.fault(s, &s.left.keysDeleted, "has S deleted by hand", n)
		t.faulty, t.leases[n].s = true, false
	}
	if l.l1 && s.left.clocks > 0 {
		t := m.fault(s, &s.left.clocks, "is given up by the clock", n)
		t.faulty = true
		m.tell(t, n)
	}
	if s.left.crashes > 0 {
		t := m.fault(s, &s.left.crashes, "ends with its process", n)
		t.faulty, t.leases[n].dead = true, true
		m.tell(t, n)
		for i := range m.attempts {
			if a := &t.attempts[i]; m.attempts[i].session == n/2 {
				*a = attempt{stage: done, delayed: a.delayed}
			}
		}
	}
}

// endSteps: a lease that its session has given up is revoked, L2 first, or expires.
//
//go:norace
func (m *model) endSteps(s *state, n int8) {
	l := &s.leases[n]
	if l.l2 && (!m.rules.closeL1First || !l.l1) {
		m.endL2(m.step(s, "has L2 revoked, or it expires", n), n)
	}
	if l.l1 && (!l.l2 || l.dead || m.rules.closeL1First) {
		m.endL1(m.step(s, "has L1 revoked, or it expires", n), n)
	}
}

// tell tells a session that its lease is lost, or has it give the lease up.
func (m *model) tell(s *state, n int8) {
	s.leases[n].told = true
	for i := range m.attempts {
		a := &s.attempts[i]
		if m.attempts[i].session == n/2 && a.pair == n%2 && a.stage >= sent && a.stage < leaving {
			a.again = a.again || a.stage == holding // a hold that is lost is not queued for again
			a.stage = leaving
		}
	}
}

// poll tells the holders of a session whose entries are gone. A look whose reply is read later is older than the poll.
func (m *model) poll(s *state, n int8) {
	for i := range m.attempts {
		a := &s.attempts[i]
		polled := a.stage == holding || a.stage == ready && m.prompt
		if m.attempts[i].session == n/2 && a.pair == n%2 && polled && !m.stand(s, int8(i)) {
			a.again = a.again || a.stage == holding
			a.stage = leaving
		}
	}
}

// putS puts S again, unless L1 is gone: no copy of an earlier put does anything from now on.
func (m *model) putS(s *state, n int8) {
	s.leases[n].s = s.leases[n].l1
	if !m.rules.putIgnoresS {
		m.dropPuts(s, n)
	}
}

func (m *model) dropPuts(s *state, n int8) {
	for k := range s.copies {
		if c := &s.copies[k]; c.kind == latePut && 2*m.attempts[c.by].session+c.pair == n {
			*c = requestCopy{}
		}
	}
}

// endL1 deletes S and the entries on L1.
func (m *model) endL1(s *state, n int8) {
	s.leases[n].l1, s.leases[n].s = false, false
	for k := range 2 * m.n {
		if q := &s.keys[k]; m.leaseOf(k) == n && !q.kept {
			q.e = 0
		}
	}
}

// endL2 deletes the claims on L2. No copy of a put can put one there any more.
func (m *model) endL2(s *state, n int8) {
	s.leases[n].l2 = false
	m.dropPuts(s, n)
	for k := range 2 * m.n {
		if of := m.leaseOf(k); of == n || m.rules.oneL2 && of/2 == n/2 {
			s.keys[k].c = 0
		}
	}
}

// moveKept moves the entries that MinHold keeps, before Close revokes anything.
func (m *model) moveKept(s *state, n int8) {
	for i := range m.attempts {
		a, p := &s.attempts[i], &m.attempts[i]
		if p.session == n/2 && a.pair == n%2 && p.minHold && a.stage == holding {
			m.move(s, m.own(s, int8(i)), a.r)
		}
	}
}
