package queuemodel

// The steps of an attempt, from its enqueue to its end.

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

func (m *model) begin(s *state, i int8) {
	n := m.attempts[i].session
	c := &s.sessions[n]
	switch {
	case c.closing || m.lostForGood(s, n):
		m.end(m.step(s, "ends: its session has no lease", i), i)
	case !s.leases[c.lease].told:
		t := m.step(s, "sends its enqueue", i)
		t.attempts[i].lease, t.attempts[i].gate = c.lease, c.gate
		t.send(i)
	}
}

func (s *state) send(i int8) {
	a := &s.attempts[i]
	a.stage = enqueuing
	s.copies[s.copyCount] = enqueueCopy{
		attempt: i, try: a.try, lease: a.lease, gate: a.gate, replaces: a.replaces, awaited: true,
	}
	s.copyCount++
}

// stopAwaiting counts the copy that was sent last as unanswered.
func (s *state) stopAwaiting(i int8) {
	a := &s.attempts[i]
	a.unanswered = max(a.unanswered, a.gate)
	for k := range s.copyCount {
		if c := &s.copies[k]; c.attempt == i && c.awaited {
			c.awaited = false
			if c.answered {
				s.dropCopy(k)
			}
			return
		}
	}
}

func (m *model) enqueuingSteps(s *state, i int8) {
	plan := m.attempts[i]
	c := &s.sessions[plan.session]
	if c.closing && !m.clean {
		t := m.step(s, "ends unanswered: its session closes", i)
		m.endUnanswered(t, i)
		return
	}
	awaits, copies := false, int8(0)
	for _, c := range s.copies[:s.copyCount] {
		if c.attempt == i {
			copies++
			awaits = awaits || c.awaited
		}
	}
	if awaits && !plan.slow {
		return
	}
	if copies < max(m.copies, 1) && !c.keyMissing {
		t := m.step(s, "has no reply and sends the same enqueue again", i)
		t.stopAwaiting(i)
		t.send(i)
	}
	if plan.givesUp {
		m.endUnanswered(m.step(s, "gives up without a reply", i), i)
	}
}

// endUnanswered ends an attempt that has no reply. It deletes no entry that another may wait
// behind: the sweeper does.
func (m *model) endUnanswered(s *state, i int8) {
	a := &s.attempts[i]
	s.stopAwaiting(i)
	if a.replaces != 0 { // this entry was held; it may go at once
		s.deleteEntry(released(i, a.try, a.replaces))
	}
	if m.broken == endPutsTheKey && s.leases[a.lease].key != 0 {
		s.putSessionKey(a.lease)
		for k := range m.members[i] {
			if e := s.named(name{i, a.try, int8(k)}); e != nil {
				s.deleteNow(e.version())
			}
		}
		s.sessions[m.attempts[i].session].gate, a.unanswered = s.now, 0
	}
	m.end(s, i)
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

// answer handles the reply to the copy that the attempt awaits.
func (m *model) answer(s *state, c enqueueCopy) {
	i := c.attempt
	a, n := &s.attempts[i], &s.sessions[m.attempts[i].session]
	if c.accepted {
		m.placed(s, i, c.created, c.created)
		return
	}
	// Refused. One Txn reads the own entries and the session key.
	if own := m.anyNamed(s, i); own != nil { // an earlier copy put them: the others remain unanswered
		a.unanswered = max(a.unanswered, a.gate)
		if m.broken == foundIsAnswered {
			a.unanswered = 0
		}
		at := own.created // not now: how the entries went that have gone since must be judged
		if m.broken == foundReadsNow {
			at = s.now
		}
		if created := own.created; m.lacksEntry(s, i, created) && m.broken != foundSpeaksForAll {
			m.locate(s, i, created, at)
			m.queueAnew(s, i)
		} else {
			m.placed(s, i, created, at)
		}
		return
	}
	key := s.leases[a.lease].key
	switch {
	case n.closing:
		m.endUnanswered(s, i)
	case key == 0: // deleted by hand, or with the lease: the session finds out
		a.unanswered = max(a.unanswered, a.gate)
	default:
		n.gate = max(n.gate, key)
		if key > a.unanswered { // the gate has closed behind every copy, and none had been carried out
			a.unanswered = 0
		}
		if a.replaces != 0 && s.standing(released(i, a.try, a.replaces)) == nil { // an administrator has removed it
			a.replaces, a.queued = 0, false // it queues anew
		}
		a.gate = key
		s.send(i)
	}
}

// placed records an attempt's places in its queues. It holds at once if all are free.
func (m *model) placed(s *state, i int8, created, at revision) {
	m.locate(s, i, created, at)
	switch a := &s.attempts[i]; {
	case s.sessions[m.attempts[i].session].closing:
		a.stage = removing
	case a.mayHold():
		s.hold(i)
	}
}

// locate records an attempt's places: its entries were put at a revision, and what stood ahead of them is
// read at another.
func (m *model) locate(s *state, i int8, created, at revision) {
	a := &s.attempts[i]
	a.stage, a.refused, a.replaces = waiting, false, 0
	delays := a.requeued
	for k := range int8(len(m.members[i])) {
		p := s.place(i, k)
		*p = place{created: created, seen: created, delay: p.delay}
		if m.broken == setPutByTwoTxns {
			p.created = s.named(name{i, a.try, k}).created
		}
		p.ahead, p.others = m.nearest(s, s.own(i, k), at), m.othersAhead(s, s.own(i, k))
		switch m.broken {
		case requeuedWithoutDelay, requeuedDelaysFromGrant:
			delays = false
		case requeuedDelaysOnlyBehind:
			delays = delays && p.ahead.created != 0
		}
		if delays {
			m.startDelay(s, &p.delay)
		}
	}
}

// mayHold reports whether each queue is free and no delay runs.
func (a *attempt) mayHold() bool {
	for _, p := range a.places {
		if p.ahead.created != 0 || p.delay.running {
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
		m.violated("needless delay: no lease was revoked, and no entry removed")
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
	if a.mayHold() {
		m.step(s, "holds", i).hold(i)
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
	case (m.unknown || k != 0) && p.seen < s.now:
		m.step(s, "sees that its entry ahead stands", i).place(i, k).seen = s.now
	}
}
