package queuemodel

// Steps that traces know by their names. So are those that begin with "looks".
const (
	waitsOut       = "has waited for its delays"
	beginsToHold   = "holds"
	releases       = "releases"
	isPolled       = "is told by its poll"
	findsLeaseGone = "finds its lease gone"
	isTold         = "is lost: its session is told"
	isAsked        = "is asked to let go"
	putsKey        = "has S put again by its session"
)

// attemptSteps finds the steps of an attempt.
//
//go:norace
func (m *model) attemptSteps(s *state, i int8) {
	a, p := &s.attempts[i], &m.attempts[i]
	switch a.stage {
	case idle:
		m.beginSteps(s, i)
	case sent:
		m.putSteps(s, i)
	case waiting:
		if s.keys[a.watch].e != a.watched {
			m.look(m.step(s, "looks: the entry ahead is gone", i), i)
		} else if !m.stand(s, i) {
			m.look(m.step(s, "looks again", i), i)
		}
	case delayed:
		m.delaySteps(s, i)
	case ready:
		if !m.leaseOfAttempt(s, i).told {
			m.step(s, beginsToHold, i).attempts[i].stage = holding
		}
		if !m.stand(s, i) { // before a delay for it is over, its look is too old to hold by
			m.look(m.step(s, "looks again", i), i)
		}
	case holding:
		m.holdSteps(s, i)
	case leaving, swept:
		m.leaveSteps(s, i)
	case inLine, done:
	}
	if p.givesUp && (a.stage == sent || a.stage == waiting || a.stage == delayed || a.stage == ready) {
		t := m.choice(s, "gives up", i)
		t.attempts[i].stage, t.attempts[i].again = leaving, true
	}
	if m.traced && (a.stage == waiting || a.stage == delayed || a.stage == ready) {
		m.look(m.choice(s, "looks again", i), i)
	}
}

//go:norace
func (m *model) leaseOfAttempt(s *state, i int8) *twin {
	return &s.leases[2*m.attempts[i].session+s.attempts[i].pair]
}

// beginSteps: an attempt takes the lease that its session has.
//
//go:norace
func (m *model) beginSteps(s *state, i int8) {
	p := &m.attempts[i]
	if p.after != 0 && s.attempts[p.after-1].stage != done {
		return
	}
	first := 2 * p.session
	for pair := range int8(2) {
		if l := &s.leases[first+pair]; l.granted && !l.told {
			t := m.step(s, "begins", i)
			t.attempts[i].stage, t.attempts[i].pair = sent, pair
			return
		}
	}
	if l := &s.leases[first]; !m.mayRegrant(l) || s.leases[first+1].granted {
		m.end(m.step(s, "ends: its session has no lease", i), i, false)
	}
}

func (m *model) mayRegrant(l *twin) bool { return m.regrants && !l.dead && !l.closing }

// putSteps: the put is sent, for the first time or again. In traces copies of it are in the network already.
//
//go:norace
func (m *model) putSteps(s *state, i int8) {
	a, l := &s.attempts[i], m.leaseOfAttempt(s, i)
	probe := *s
	switch {
	case m.traced:
		m.tracedPutSteps(s, i)
	case m.put(&probe, i, a.pair, 0, 0):
		t := m.step(s, "puts its entries and claims, and looks", i)
		m.put(t, i, a.pair, 0, 0)
		m.wasPut(t, i)
		if s.left.lost > 0 {
			t := m.fault(s, &s.left.lost, "puts its entries and claims; no reply", i)
			m.put(t, i, a.pair, 0, 0)
			t.attempts[i].open = true
		}
		if s.left.late > 0 {
			t := m.fault(s, &s.left.late, "puts; the copy is late", i)
			t.keep(requestCopy{kind: latePut, by: i, pair: a.pair})
			t.attempts[i].open = true
		}
	case !l.l1:
		m.tell(m.step(s, findsLeaseGone, i), 2*m.attempts[i].session+a.pair)
		if m.left(s, i) != 0 { // before its session is told
			m.readWhy(m.step(s, "reads why its put was refused", i), i)
		}
	case !l.l2, !l.s: // its session gets another L2, or puts S again
	default:
		m.readWhy(m.step(s, "reads why its put was refused", i), i)
	}
}

// wasPut reads the reply to a put that was carried out.
func (m *model) wasPut(s *state, i int8) {
	s.attempts[i].r = s.keys[m.own(s, i)[0]].e
	m.look(s, i)
}

// found returns the create revision of the entries of an attempt if all stand, put by a copy of its put.
func (m *model) found(s *state, i int8) (r revision) {
	for _, k := range m.own(s, i) {
		q := &s.keys[k]
		if q.by != i || q.e == 0 || r != 0 && q.e != r {
			return 0
		}
		r = q.e
	}
	return r
}

// left returns the create revision of a claim that stands without its entry, by a copy of the put of an attempt.
func (m *model) left(s *state, i int8) revision {
	for _, k := range m.own(s, i) {
		if q := &s.keys[k]; q.by == i && q.e == 0 && q.c != 0 {
			return q.c
		}
	}
	return 0
}

// readWhy reads the own keys after a refusal, and looks by the same reply.
func (m *model) readWhy(s *state, i int8) {
	a := &s.attempts[i]
	if m.found(s, i) != 0 {
		m.wasPut(s, i)
		return
	}
	mine := false
	for _, k := range m.own(s, i) {
		mine = mine || s.keys[k].by == i && s.keys[k].c+s.keys[k].e != 0
	}
	a.stage = leaving
	if m.attempts[i].try && !mine {
		a.again = true // ErrLocked
	} else {
		a.open = true // an earlier copy has put them, and another client has deleted one
	}
}

// delaySteps: only dead claims are ahead. When their delays are over the attempt clears them, and holds if nothing has
// changed.
//
//go:norace
func (m *model) delaySteps(s *state, i int8) {
	a := &s.attempts[i]
	for k, c := range a.dead {
		if c == 0 {
			continue
		}
		l, seen := &s.leases[m.leaseOf(int8(k))], &s.seen[m.attempts[i].session][k]
		if s.keys[k].c != c || !l.s && !seen.without {
			m.look(m.step(s, "looks: a claim or its session key is gone", i), i)
			break
		}
	}
	if !m.stand(s, i) {
		m.look(m.step(s, "looks again", i), i)
	}
	if !m.allOver(s, i) {
		return
	}
	if m.traced && !a.waited {
		m.step(s, waitsOut, i).attempts[i].waited = true
		return
	}
	if probe := *s; m.traced && !m.clear(&probe, i, a.pair, a.r, &a.dead) {
		return // refused: a look follows
	}
	m.clearAndHold(m.step(s, "clears the dead claims", i), i)
	if s.left.lost > 0 {
		t := m.fault(s, &s.left.lost, "clears the dead claims; no reply", i)
		m.clear(t, i, a.pair, a.r, &a.dead)
		m.look(t, i)
	}
	if s.left.late > 0 {
		t := m.fault(s, &s.left.late, "clears the dead claims; a copy is late", i)
		t.keep(requestCopy{kind: lateClear, by: i, pair: a.pair, r: a.r, dead: a.dead})
		m.clearAndHold(t, i)
	}
}

func (m *model) clearAndHold(s *state, i int8) {
	a := &s.attempts[i]
	dead := a.dead
	if m.clear(s, i, a.pair, a.r, &dead) {
		a.stage, a.dead = ready, claims{}
		return
	}
	m.look(s, i)
}

// holdSteps: an attempt holds, and releases.
//
//go:norace
func (m *model) holdSteps(s *state, i int8) {
	a, p, l := &s.attempts[i], &m.attempts[i], m.leaseOfAttempt(s, i)
	switch {
	case l.told:
		return
	case !m.stand(s, i) && l.l1:
		t := m.step(s, isPolled, i)
		t.attempts[i].stage, t.attempts[i].again = leaving, true
	case m.stand(s, i) && p.minHold:
		m.moveAndEnd(m.step(s, "releases: MinHold", i), i)
		if s.left.late > 0 {
			t := m.fault(s, &s.left.late, "releases: MinHold; a copy is late", i)
			t.keep(requestCopy{kind: lateMove, by: i, pair: a.pair, r: a.r})
			m.moveAndEnd(t, i)
		}
		return
	case m.stand(s, i) && p.downs && !a.down:
		keys := m.own(s, i)
		t := m.choice(s, "goes on as a reader", i)
		t.attempts[i].down = m.downgrade(t, keys, a.r)
		if s.left.late > 0 {
			t := m.fault(s, &s.left.late, "goes on as a reader; a copy is late", i)
			t.keep(requestCopy{kind: lateDowngrade, by: i, pair: a.pair, r: a.r})
			t.attempts[i].down = m.downgrade(t, keys, a.r)
		}
	}
	t := m.step(s, releases, i)
	t.attempts[i].stage, t.attempts[i].again = leaving, true
}

func (m *model) moveAndEnd(s *state, i int8) {
	m.move(s, m.own(s, i), s.attempts[i].r)
	m.endOrSweep(s, i)
}

// endOrSweep ends an attempt; a copy of its put that was not answered is left to the sweeper.
func (m *model) endOrSweep(s *state, i int8) {
	a := s.attempts[i]
	m.end(s, i, false)
	if a.open {
		s.attempts[i] = attempt{stage: leaving, again: true, pair: a.pair, open: true, delayed: a.delayed}
	}
}

// leaveSteps: an attempt removes its entries and claims, and ends or queues again.
//
//go:norace
func (m *model) leaveSteps(s *state, i int8) {
	a, p, l := &s.attempts[i], &m.attempts[i], m.leaseOfAttempt(s, i)
	switch {
	case l.told: // its entries and claims go with their leases
		m.end(m.step(s, "ends: its lease is lost", i), i, true)
	case p.next != 0 && s.attempts[p.next-1].stage == inLine && a.r != 0 && a.stage == leaving:
		m.handOffSteps(s, i)
	case a.stage == swept:
		t := m.step(s, "removes what it finds at its keys", i)
		for _, k := range m.own(t, i) {
			if q := &t.keys[k]; q.by == i && !q.kept {
				*q = key{}
			}
		}
		m.end(t, i, true)
	case m.traced:
		m.tracedLeaveSteps(s, i)
	case a.open && !m.rules.reuseAtOnce:
		t := m.step(s, "has S put again", i)
		m.putS(t, 2*p.session+a.pair)
		t.attempts[i].stage = swept
	default:
		t := m.step(s, "leaves", i)
		m.release(t, m.own(t, i), a.r)
		m.end(t, i, true)
		if s.left.lost > 0 {
			t := m.fault(s, &s.left.lost, "leaves; no reply", i)
			m.release(t, m.own(t, i), a.r)
		}
		if s.left.late > 0 {
			t := m.fault(s, &s.left.late, "leaves; a copy is late", i)
			t.keep(requestCopy{kind: lateRelease, by: i, pair: a.pair, r: a.r})
			m.release(t, m.own(t, i), a.r)
			m.end(t, i, true)
		}
	}
}

// handOffSteps: one Txn removes the entries of an attempt and puts those of the next goroutine of its line.
func (m *model) handOffSteps(s *state, i int8) {
	a, next := &s.attempts[i], m.attempts[i].next-1
	probe := *s
	if !m.put(&probe, next, a.pair, i+1, a.r) {
		t := m.step(s, "leaves, and the next in its line begins", i)
		m.release(t, m.own(t, i), a.r)
		m.endOrSweep(t, i)
		return
	}
	t := m.step(s, "hands off", i)
	m.put(t, next, a.pair, i+1, a.r)
	m.passOn(t, i, next, false)
	m.wasPut(t, next)
	if s.left.lost > 0 {
		t := m.fault(s, &s.left.lost, "hands off; no reply", i)
		m.put(t, next, a.pair, i+1, a.r)
		m.passOn(t, i, next, true)
	}
	if s.left.late > 0 { // its session releases and puts by two Txns
		t := m.fault(s, &s.left.late, "hands off; the copy is late", i)
		t.keep(requestCopy{kind: latePut, by: next, pair: a.pair, after: i + 1, r: a.r})
		m.release(t, m.own(t, i), a.r)
		m.passOn(t, i, next, true)
	}
}

// passOn has the next attempt of a line act in place of attempt i.
func (m *model) passOn(s *state, i, next int8, open bool) {
	b := &s.attempts[next]
	b.pair, b.stage, b.open = s.attempts[i].pair, sent, open
	m.endOrSweep(s, i)
}

// end ends an attempt, or has it queue again.
func (m *model) end(s *state, i int8, queueAgain bool) {
	a, p, l := &s.attempts[i], &m.attempts[i], m.leaseOfAttempt(s, i)
	queueAgain = queueAgain && p.again && !a.again && (!l.told || m.mayRegrant(l))
	if *a = (attempt{stage: done, delayed: a.delayed}); queueAgain {
		a.stage, a.again = idle, !m.traced // a call of a run queues again as often as it has to
		return
	}
	if p.next != 0 && s.attempts[p.next-1].stage == inLine {
		s.attempts[p.next-1].stage = idle
	}
}
