package semmodel

func (m *model) attemptSteps(s *state, i int8) {
	a, l := s.attempts[i], m.pairOf(s, i, s.attempts[i].pair)
	looks := func(t *state) { m.look(t, i) }
	switch a.stage {
	case idle:
		m.begins(s, i)
	case puts:
		if l.l1 && (!l.key || !l.l2) {
			break // the session restores them first
		}
		m.send(s, i, "puts its permit or its turn", put, func(t *state) {
			if looks(t); t.attempts[i].stage == placed {
				m.position(t, i) // the reply says what stood ahead
			}
		})
	case placed:
		m.must(s, i, "reads whether its permit fits", func(t *state) { m.position(t, i) })
	case converts:
		m.send(s, i, "replaces its permit by a turn", convert, looks)
	case waits:
		if p := &s.places[a.behind]; p.turn != a.ahead || p.marked && m.broken != markIsNotWatched {
			m.must(s, i, "is told that the turn ahead is marked or gone, and looks", func(t *state) {
				if looks(t); m.broken == markHolds && t.places[a.behind].turn == a.ahead {
					t.attempts[i].stage = ready
				}
			})
		}
	case delays:
		if m.areOver(s, &a) {
			m.must(s, i, "has waited for the delay", func(t *state) { t.attempts[i].stage = clears })
		}
	case clears:
		m.send(s, i, "deletes dead claims", clear, looks)
	case admits:
		m.send(s, i, "marks those that fit", admit, looks)
	case ready:
		if !l.told {
			m.must(s, i, "holds", func(t *state) { t.attempts[i].stage = holds })
		}
	case holds:
		m.must(s, i, "releases", func(t *state) { t.attempts[i].stage, t.attempts[i].again = leaves, true })
	case leaves, swept:
		m.leavingSteps(s, i)
	}
	m.noticesSteps(s, i)
}

// begins: an attempt takes a pair of leases of its session that is not lost.
func (m *model) begins(s *state, i int8) {
	if after := m.attempts[i].after; after != 0 && s.attempts[after-1].stage != done {
		return
	}
	for n := range int8(2) {
		if m.pairOf(s, i, n).usable() {
			m.must(s, i, "begins", func(t *state) { t.attempts[i].stage, t.attempts[i].pair = puts, n })
			return
		}
	}
	if !m.regrants || m.pairOf(s, i, 1).granted {
		m.must(s, i, "has no lease, and ends", func(t *state) { t.attempts[i].stage = done })
	}
}

// noticesSteps are how an attempt hears that its key is not as it was, and how it gives up.
func (m *model) noticesSteps(s *state, i int8) {
	a, own := s.attempts[i], m.own(s, i)
	gone := own.permit != a.created && own.turn != a.created || own.moved
	switch {
	case a.news:
		m.must(s, i, "is told of a change, and looks", func(t *state) { m.look(t, i) })
	case gone && (a.stage == waits || a.stage == front || a.stage == delays):
		m.must(s, i, "looks again after a while", func(t *state) { m.look(t, i) })
	case gone && a.stage == ready && m.broken != holdsByAnOldLook:
		m.must(s, i, "looks again, since its look is old", func(t *state) { m.found(t, i) })
	case gone && a.stage == holds && m.pairOf(s, i, a.pair).l1:
		m.must(s, i, "is told by its poll", func(t *state) { t.attempts[i].stage = leaves })
	}
	if m.attempts[i].givesUp && a.stage >= puts && a.stage <= ready {
		m.choose(s, i, "gives up", func(t *state) {
			b := &t.attempts[i]
			b.unsure = b.unsure || b.stage == puts || b.stage == converts
			b.stage, b.again = leaves, true
		})
	}
}

// leavingSteps remove what an attempt has put. If a copy of a put may come yet, the session key is put again first, so
// that the keys can be used by another attempt.
func (m *model) leavingSteps(s *state, i int8) {
	a := s.attempts[i]
	switch {
	case a.stage == swept:
		m.must(s, i, "removes what it finds at its keys", func(t *state) {
			if p := m.own(t, i); p.by == i && !(p.isDead() && m.broken == claimStays) {
				*p = place{}
			}
			m.ends(t, i)
		})
	case a.unsure && m.broken != "keys are used again while a put of them may come":
		m.must(s, i, "has the session key put again", func(t *state) {
			m.moveGate(t, 2*m.attempts[i].session+a.pair)
			t.attempts[i].stage = swept
		})
	default:
		m.send(s, i, "deletes its keys", release, func(t *state) { m.ends(t, i) })
	}
}

// ends ends an attempt, or has it queue again.
func (m *model) ends(s *state, i int8) {
	a := &s.attempts[i]
	if *a = (attempt{again: a.again, waited: a.waited}); m.attempts[i].requeues && !a.again {
		a.stage, a.again = idle, true
	}
}

func (m *model) areOver(s *state, a *attempt) bool {
	for k, r := range a.batch {
		if r < 0 && s.places[k].claim == -r && !m.isOver(s, int8(k), a.alive>>k&1 == 1) {
			return false
		}
	}
	return true
}

// isOver reports whether the delay for a dead claim may be over. LockDelay has passed only when a session whose L1 is
// gone has been told. Where the session key stands, ToldWithin has passed only when the holder has been told by a poll.
func (m *model) isOver(s *state, k int8, alive bool) bool {
	over := s.pairs[m.pairAt[k]].l1 || s.pairs[m.pairAt[k]].told
	if alive && m.broken != "LockDelay is waited for also where the session key stands" {
		over = !m.believes(s, k)
	}
	return over || m.broken == "there is no delay"
}

// believes reports whether the attempt that put a place holds, or may begin to by a look that is not old.
func (m *model) believes(s *state, k int8) bool {
	p := &s.places[k]
	a := &s.attempts[p.by]
	return m.placeOf(p.by, a.pair) == k && a.created == max(p.claim, p.permit, p.turn) &&
		(a.stage == holds || a.stage == ready && m.broken != holdsByAnOldLook)
}

// send adds the steps of a Txn: it is answered; it is refused, and the attempt looks; the reply is lost; a copy is
// late. Without a reply the attempt sends it again.
func (m *model) send(s *state, i int8, what string, k kind, answered func(*state)) {
	x := txn{kind: k, by: i, known: s.attempts[i].known}
	if t := *s; !m.carryOut(&t, x) {
		m.must(s, i, what+": refused, and looks", func(t *state) { m.look(t, i) })
		return
	}
	m.must(s, i, what, func(t *state) { m.carryOut(t, x); answered(t) })
	unanswered := func(t *state) { t.attempts[i].unsure = s.attempts[i].unsure || k == put }
	m.fault(s, i, loseReply, what+", and has no reply", func(t *state) { m.carryOut(t, x); unanswered(t) })
	m.fault(s, i, delayCopy, what+": a copy is late", func(t *state) { t.addLate(x); unanswered(t) })
}
