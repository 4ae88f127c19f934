package queuemodel

// Leases and their ends: revoked, given up, deleted session keys, Close.

func (m *model) leaseSteps(s *state, l int8) {
	n := l / 2
	held, c := s.leases[l], s.sessions[n]
	if !held.granted {
		return
	}
	if held.alive && s.revoked < m.revokes && m.may(m.revokable, n) {
		t := m.step(s, "is revoked by etcd, though it was renewed", l)
		t.revoke(l)
		t.revoked++
		if c.closing || held.told { // all its holds have ended
			m.tell(t, l)
		}
	}
	if !held.alive && !held.told {
		m.tell(m.step(s, "is lost: its session is told", l), l)
	}
	if held.alive && !held.told && !c.closing && (c.keyMissing || s.givenUpLeases < m.giveUpLeases) {
		what := "is given up: its session has no confirmed renewal in time"
		if c.keyMissing {
			what = "is given up: the put of its session key goes unanswered"
		}
		t := m.step(s, what, l)
		if !c.keyMissing {
			t.givenUpLeases++
		}
		m.tell(t, l)
	}
	if held.alive && held.told {
		t := m.step(s, "expires", l)
		t.revoke(l)
		m.tell(t, l)
	}
	if held.key != 0 && !c.closing && !held.told && s.keysDeleted < m.deleteKeys {
		t := m.step(s, "has its session key deleted by hand", l)
		t.now++
		t.deleteSessionKey(l)
		t.keysDeleted++
		t.sessions[n].keyMissing = true
	}
	if held.alive && s.latePuts < m.latePuts {
		t := m.step(s, "has its session key put by a copy that arrives late", l)
		t.putSessionKey(l)
		t.latePuts++
	}
	if c.keyMissing && l == c.lease && !c.closing && !held.told {
		t := m.step(s, "has its session key put again by its session, if it still lives", l)
		t.sessions[n].keyMissing = false
		if held.alive {
			t.putSessionKey(l)
			t.sessions[n].gate = t.now
		} else {
			m.tell(t, l)
		}
	}
}

func (m *model) sessionSteps(s *state, n int8) {
	c := s.sessions[n]
	held := s.leases[c.lease]
	switch {
	case held.told && !c.closing && !m.lostForGood(s, n):
		t := m.step(s, "is granted a new lease", n)
		l := c.lease + 1
		t.leases[l] = lease{granted: true, alive: true}
		t.putSessionKey(l)
		t.sessions[n] = session{lease: l, gate: t.now}
		if m.broken == requeuedDelaysFromGrant {
			for i := range m.attempts {
				if a := &t.attempts[i]; m.attempts[i].session == n && a.stage == idle && a.requeued {
					m.startDelay(t, &a.places[0].delay)
				}
			}
		}
	case held.told:
	case !c.closing:
		if m.may(m.closing, n) {
			m.close(m.step(s, "begins to close", n), n)
		}
		if held.alive {
			m.sweepSteps(s, n)
		}
		if m.lateGate && held.alive && c.gate < held.key {
			t := m.step(s, "reads that its session key was put", n)
			t.sessions[n].gate = held.key
			m.stopCopies(t, n)
		}
	case held.alive && (!m.clean || !m.anythingOn(s, n)):
		t := m.step(s, "revokes its lease to close", n)
		t.revoke(c.lease)
		m.tell(t, c.lease)
	}
}

// lostForGood reports whether a session has lost its lease and gets no other.
func (m *model) lostForGood(s *state, n int8) bool {
	l := s.sessions[n].lease
	return s.leases[l].told && (l%2 == 1 || !m.may(m.regrants, n))
}

// close ends the holds. Waiting entries are removed by the usual rule. An entry that is left when
// the lease is revoked is deleted with it, and those behind wait for the lock delay.
func (m *model) close(s *state, n int8) {
	s.sessions[n].closing = true
	if m.broken == closeDeletesKeyFirst {
		s.now++
		s.deleteSessionKey(s.sessions[n].lease)
	}
	for i := range m.attempts {
		a := &s.attempts[i]
		if m.attempts[i].session != n {
			continue
		}
		switch {
		case a.stage == holding && m.attempts[i].minHold:
			own := s.own(int8(i), 0)
			m.keep(s, int8(i))
			if m.broken == closeDeletesKept {
				s.deleteEntry(own)
			}
		case a.stage == holding || a.stage == waiting:
			a.quit()
		}
	}
}

// quit makes an attempt remove its entries, one by one. Those that were held may be removed at once.
func (a *attempt) quit() { a.stage = removing }

// anythingOn reports whether a closing session has an entry left to remove. A Close that has time
// waits for it.
func (m *model) anythingOn(s *state, n int8) bool {
	for i := range s.entryCount {
		if e := &s.entries[i]; e.deleted == 0 && e.lease/2 == n && e.kept != moved {
			return true
		}
	}
	for i := range m.attempts {
		if m.attempts[i].session == n && s.attempts[i].stage == enqueuing {
			return true
		}
	}
	return false
}

// tell ends what depends on a lease: its session knows that it is lost, gives it up, or has closed.
func (m *model) tell(s *state, l int8) {
	n := l / 2
	s.leases[l].told = true
	s.sessions[n].keyMissing = false
	for i := range s.entryCount {
		s.entries[i].until &^= 1 << l
	}
	for i := range m.attempts {
		a := &s.attempts[i]
		a.newcomerTo, a.behind = a.newcomerTo&^(1<<l), a.behind&^(1<<l)
		for k := range a.places {
			a.places[k].delay.until &^= 1 << l
			a.left[k].delay.until &^= 1 << l
			for try := range a.suspects {
				a.suspects[try][k].delay.until &^= 1 << l
			}
		}
		if a.lease != l || m.attempts[i].session != n {
			continue
		}
		a.suspects = [maxTries][maxMembers]suspect{}
		if !s.leases[l].alive {
			a.left, a.leftTry = [maxMembers]place{}, 0
		}
		switch a.stage {
		case idle, done:
		case waiting, enqueuing:
			if again := a.try + 1; again < maxTries && !s.sessions[n].closing && !m.lostForGood(s, n) {
				*a = attempt{
					try: again, lease: l, requeued: true, handedOn: a.handedOn,
					queued: a.queued, newcomerTo: a.newcomerTo, behind: a.behind,
				}
				break
			}
			fallthrough
		default:
			if !s.leases[l].alive || a.stage == enqueuing {
				*a = attempt{stage: done, lease: l}
			} else if a.stage != removing { // given up: its entries are removed as by Close
				a.quit()
			}
		}
	}
	for k := s.copyCount - 1; k >= 0; k-- {
		if c := &s.copies[k]; c.lease == l {
			c.awaited = false
			if c.answered {
				s.dropCopy(k)
			}
		}
	}
}
