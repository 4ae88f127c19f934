package semmodel

// sessionSteps are what becomes of a pair of leases, by faults and by its session.
func (m *model) sessionSteps(s *state, n int8) {
	l, session := &s.pairs[n], n/2
	if !l.granted {
		if before := &s.pairs[n&^1]; n&1 == 1 && m.regrants && before.told && !before.crashed && !before.closing {
			m.must(s, session, "session gets new leases", func(t *state) { t.pairs[n] = granted })
		}
		return
	}
	if l.usable() {
		m.losses(s, n)
	}
	if l.l2 {
		m.fault(s, session, revokeClaims, "L2 is revoked early, and the session gets another one", func(t *state) {
			m.endClaims(t, n)
			m.moveGate(t, n) // a late put names the lease that is gone
			t.pairs[n].l2 = t.pairs[n].l1 && t.pairs[n].usable()
		})
	}
	switch {
	case l.usable() && l.l1 && !l.key:
		m.must(s, session, "session key is put again", func(t *state) { m.moveGate(t, n) })
	case l.told && l.l1 && (!l.l2 || l.crashed || m.broken == "Close revokes L1 first"):
		m.must(s, session, "L1 is revoked, or expires", func(t *state) { m.end(t, n) })
	case l.told && l.l2:
		m.must(s, session, "L2 is revoked, or expires", func(t *state) { m.endClaims(t, n) })
	}
}

func (m *model) losses(s *state, n int8) {
	l, session := &s.pairs[n], n/2
	if !l.l1 {
		m.must(s, session, "session is told that L1 is gone", func(t *state) { m.tell(t, n) })
		return
	}
	m.fault(s, session, revoke, "L1 is revoked early", func(t *state) { m.end(t, n) })
	m.fault(s, session, loseByClock, "session gives up its leases by its clock", func(t *state) { m.tell(t, n) })
	m.fault(s, session, closeSession, "Close", func(t *state) { t.pairs[n].closing = true; m.tell(t, n) })
	m.fault(s, session, crash, "process dies", func(t *state) {
		t.pairs[n].crashed = true
		m.tell(t, n)
		for i, p := range m.attempts {
			if p.session == session {
				t.attempts[i] = attempt{waited: t.attempts[i].waited}
			}
		}
	})
	if l.key {
		m.fault(s, session, deleteKey, "session key is deleted by hand", func(t *state) { t.pairs[n].key = false })
	}
}

// tell tells a session that its leases are lost. What stands on them goes with them.
func (m *model) tell(s *state, n int8) {
	s.pairs[n].told = true
	for i := range m.attempts {
		if a := &s.attempts[i]; m.attempts[i].session == n/2 && a.stage > idle && a.pair == n&1 {
			m.ends(s, int8(i))
		}
	}
}

// handSteps are what others do to keys: etcdctl del, and an administrator's removal.
func (m *model) handSteps(s *state, k int8) {
	p := &s.places[k]
	gone := func(t *state) { t.places[k].permit, t.places[k].turn = 0, 0 }
	if p.waits() {
		m.fault(s, k, deleteTurn, "turn is deleted by hand", gone)
	} else if p.isPermit() {
		m.fault(s, k, deletePermit, "permit is deleted by hand", gone)
	}
	switch {
	case p.moved && !(p.held && m.believes(s, k)):
		m.must(s, k, "lease of a removal expires", gone)
	case p.moved:
	case p.isPermit() || p.waits() && m.broken == "an administrator puts a turn that waits":
		m.fault(s, k, remove, "permit is removed by an administrator", func(t *state) {
			p := &t.places[k]
			p.moved, p.held, p.claim = true, m.believes(t, k), 0
			p.marked = p.turn != 0 // it is put
		})
	case p.waits():
		m.fault(s, k, remove, "turn is removed by an administrator", func(t *state) { t.places[k] = place{} })
	}
}

// othersSteps: any attempt may admit the front, and clear claims whose delay is over, at once or late.
func (m *model) othersSteps(s *state) {
	for k := range m.places {
		p := &s.places[k]
		key := s.pairs[m.pairAt[k]].key
		if !p.isDead() || p.counts && !m.isOver(s, k, key) {
			continue
		}
		x := txn{kind: clear, by: p.by}
		x.batch[k] = -p.claim
		m.choose(s, k, "claim is deleted by someone", func(t *state) { m.carryOut(t, x) })
		m.fault(s, k, delayCopy, "claim is deleted by someone, late", func(t *state) { t.addLate(x) })
	}
	if turns := m.turns(s); len(turns) > 0 && m.atFront(s).room {
		k := turns[0]
		x := txn{kind: admit, by: s.places[k].by, known: known{limitAt: s.limitAt, batch: m.atFront(s).batch}}
		m.choose(s, k, "front is admitted by someone", func(t *state) { m.carryOut(t, x) })
		m.fault(s, k, delayCopy, "front is admitted by someone, late", func(t *state) { t.addLate(x) })
	}
}
