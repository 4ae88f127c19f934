package queuemodel

// The steps of an attempt, from its places in the queues to its end.

func (m *model) attemptSteps(s *state, i int8) {
	a := &s.attempts[i]
	switch a.stage {
	case idle:
		m.begin(s, i)
	case enqueuing:
		m.enqueuingSteps(s, i)
	case waiting:
		m.waitingSteps(s, i)
	case holding:
		m.release(s, i)
	}
	for k := range 2 * int8(maxMembers) {
		p := s.place(i, k)
		if p.created != 0 && (a.stage == removing || k >= maxMembers) {
			m.leavingSteps(s, i, k)
		}
		if p.delay.running && p.delay.until == 0 {
			m.step(s, "has waited for its lock delay", i).place(i, k).delay.running = false
		}
	}
	m.downgradeSteps(s, i)
	if m.attempts[i].line && !m.attempts[i].minHold && !a.handedOn && a.try+1 < maxTries {
		m.handOffSteps(s, i)
	}
}

func (m *model) release(s *state, i int8) {
	switch own := s.standing(s.own(i, 0)); {
	case !m.attempts[i].minHold && (len(m.members[i]) == 1 || m.allStand(s, i) && !s.attempts[i].downgraded):
		m.remove(m.step(s, "releases", i), i)
	case !m.attempts[i].minHold:
		m.step(s, "releases, and finds that it must remove its entries one by one", i).attempts[i].quit()
	case m.broken == movedBeforeToldAboutIt && own != nil && own.kept == notKept:
		t := m.step(s, "has its entry moved while its work runs", i)
		t.standing(own.version()).kept = moved
	default:
		m.keep(m.step(s, "releases, and its name stays taken", i), i)
	}
}

// end ends an attempt. The sweeper takes over what is not known of it.
func (m *model) end(s *state, i int8) {
	m.passToSweeper(s, i)
	a := &s.attempts[i]
	*a = attempt{stage: done, lease: a.lease, suspects: a.suspects, left: a.left, leftTry: a.leftTry}
}

// passToSweeper makes the entries of the attempt's present try suspects, if a copy of its enqueue may be carried out or
// may have been. From then on each is judged by itself.
func (m *model) passToSweeper(s *state, i int8) {
	a := &s.attempts[i]
	if l := s.leases[a.lease]; a.unanswered == 0 || !l.alive || l.told || m.broken == nothingIsSwept {
		return
	}
	for k := range m.members[i] {
		q := &a.suspects[a.try][k]
		switch {
		case a.unanswered == s.sessions[m.attempts[i].session].gate:
			q.doubt = copyMayArrive
		case a.places == [maxMembers]place{} && m.broken != newGateSettles:
			q.doubt = entryMayStand
		}
	}
}

// mayHold reports whether each queue of the attempt is free and no delay runs, by a look that is not old.
func (m *model) mayHold(s *state, i int8) bool {
	if s.attempts[i].looksAgain && m.broken != oldLookSuffices {
		return false
	}
	for k := range int8(len(m.members[i])) {
		p := s.place(i, k)
		delays := p.delay.running && (m.broken != delayOfTheLastQueue || k == int8(len(m.members[i]))-1)
		if p.ahead.created != 0 || delays {
			return false
		}
	}
	return true
}

// hold makes the attempt a holder. It needs nothing any more of what it knows of its places.
func (s *state) hold(i int8) {
	a := &s.attempts[i]
	a.stage, a.requeued = holding, false
	for k, p := range a.places {
		a.places[k] = place{created: p.created}
	}
}

// startDelay begins a lock delay, or begins it again.
func (m *model) startDelay(s *state, d *delay) {
	d.running = true
	d.until |= s.untold()
	if m.clean && s.revoked+s.keysDeleted+s.givenUpLeases+s.deletedByHand+s.removals == 0 {
		m.last().Wrong = "needless delay: no lease was revoked, and no entry removed"
	}
}

// waitingSteps are the steps of an attempt that has places and does not hold.
func (m *model) waitingSteps(s *state, i int8) {
	a := &s.attempts[i]
	if k := a.waitsIn(); k >= 0 {
		m.awaitAhead(s, i, k)
	}
	// The Txn that has found the last queue free has found the own entries, too. They may have gone
	// since. Then the attempt holds like any holder that is not told yet.
	switch {
	case m.mayHold(s, i):
		m.step(s, "holds", i).hold(i)
	case !a.looksAgain || a.waitsIn() >= 0 || !s.leases[a.lease].alive || a.left != [maxMembers]place{}:
	case m.lacksEntryFor(s, i, 0):
		m.findsEntryGone(s, i)
	default:
		m.step(s, "looks at its entries again", i).attempts[i].looksAgain = false
	}
	if m.attempts[i].givesUp {
		m.step(s, "gives up", i).attempts[i].stage = removing
	}
}

// waitsIn returns the first of the places where the queue is not free, or -1. An attempt looks at one queue after the
// other: what is free ahead of its entry stays free.
func (a *attempt) waitsIn() int8 {
	for k, p := range a.places {
		if p.ahead.created != 0 {
			return int8(k)
		}
	}
	return -1
}

// awaitAhead waits for the entry ahead in one queue. Each read compares that all own entries stand.
func (m *model) awaitAhead(s *state, i, k int8) {
	a := &s.attempts[i]
	p := a.places[k]
	switch {
	case !s.leases[a.lease].alive: // the session finds out
	case m.lacksEntryFor(s, i, k):
		if a.left == [maxMembers]place{} {
			m.findsEntryGone(s, i)
		}
	case s.standing(p.ahead) == nil:
		m.judge(s, i, k)
	case m.broken == earlierEndCounts: // what stood before the entry ahead had been put
		p := m.step(s, "hears how an earlier entry at the key ahead went", i).place(i, k)
		p.ahead = m.nearest(s, s.own(i, k), p.ahead.created-1)
	case (m.unknown || k != 0) && p.seen < s.now:
		m.step(s, "sees that its entry ahead stands", i).place(i, k).seen = s.now
	}
}
