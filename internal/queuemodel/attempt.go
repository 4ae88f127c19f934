package queuemodel

// The steps of an attempt, from its enqueue to its end.

func (m *model) attemptSteps(s *state, i int8) {
	a := &s.attempts[i]
	switch a.stage {
	case idle:
		m.begin(s, i)
	case enqueuing:
		m.enqueuingSteps(s, i)
	case waiting, removing:
		m.waitingSteps(s, i)
	case holding:
		m.release(s, i)
	}
	if m.attempts[i].line && !m.attempts[i].minHold && !a.handedOn && a.try+1 < maxTries {
		m.handOffSteps(s, i)
	}
	if a.place.delay.running && a.place.delay.until == 0 {
		m.step(s, "has waited for its lock delay", i).attempts[i].place.delay.running = false
	}
}

func (m *model) release(s *state, i int8) {
	switch own := s.standing(s.attempts[i].place.created); {
	case !m.attempts[i].minHold:
		m.remove(m.step(s, "releases", i), i)
	case m.broken == movedBeforeToldAboutIt && own != nil && own.kept == notKept:
		t := m.step(s, "has its entry moved while its work runs", i)
		t.standing(own.created).kept = moved
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
		s.deleteEntry(a.replaces)
	}
	if m.broken == endPutsTheKey && s.leases[a.lease].key != 0 {
		s.putSessionKey(a.lease)
		if e := s.named(i, a.try); e != nil {
			s.deleteNow(e.created)
		}
		s.sessions[m.attempts[i].session].gate, a.unanswered = s.now, 0
	}
	m.end(s, i)
}

// end ends an attempt. The sweeper takes over what is not known of it.
func (m *model) end(s *state, i int8) {
	m.passToSweeper(s, i)
	s.attempts[i] = attempt{stage: done, lease: s.attempts[i].lease, suspects: s.attempts[i].suspects}
}

// passToSweeper makes the attempt's present try a suspect, if a copy of it may be carried out or
// may have been.
func (m *model) passToSweeper(s *state, i int8) {
	a := &s.attempts[i]
	if l := s.leases[a.lease]; a.unanswered == 0 || !l.alive || l.told || m.broken == nothingIsSwept {
		return
	}
	q := &a.suspects[a.try]
	switch {
	case a.unanswered == s.sessions[m.attempts[i].session].gate:
		q.doubt = copyMayArrive
	case a.place.created == 0 && m.broken != newGateSettles:
		q.doubt = entryMayStand
	}
}

// answer handles the reply to the copy that the attempt awaits.
func (m *model) answer(s *state, c enqueueCopy) {
	i := c.attempt
	a, n := &s.attempts[i], &s.sessions[m.attempts[i].session]
	if c.accepted {
		m.placed(s, i, c.created, c.ahead)
		return
	}
	// Refused. One Txn reads the own entry and the session key.
	if own := s.named(i, a.try); own != nil { // an earlier copy put it: the others remain unanswered
		a.unanswered = max(a.unanswered, a.gate)
		if m.broken == foundIsAnswered {
			a.unanswered = 0
		}
		at := own.created // not now: how the entries went that have gone since must be judged
		if m.broken == foundReadsNow {
			at = s.now
		}
		m.placed(s, i, own.created, m.nearest(s, own, at))
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
		if a.replaces != 0 && s.standing(a.replaces) == nil { // an administrator has removed it
			a.replaces, a.queued = 0, false // it queues anew
		}
		a.gate = key
		s.send(i)
	}
}

// placed records an attempt's place in the queue.
func (m *model) placed(s *state, i int8, created, ahead revision) {
	a := &s.attempts[i]
	a.stage, a.refused, a.replaces = waiting, false, 0
	a.place = place{created: created, ahead: ahead, seen: created, delay: a.place.delay}
	a.place.others = m.othersAhead(s, i, created)
	delays := a.requeued
	switch m.broken {
	case requeuedWithoutDelay, requeuedDelaysFromGrant:
		delays = false
	case requeuedDelaysOnlyBehind:
		delays = delays && ahead != 0
	}
	if delays {
		m.startDelay(s, &a.place.delay)
	}
	switch {
	case s.sessions[m.attempts[i].session].closing:
		a.stage = removing
	case ahead == 0 && !a.place.delay.running:
		s.hold(i)
	}
}

func (s *state) hold(i int8) {
	a := &s.attempts[i]
	a.stage, a.requeued, a.place.seen = holding, false, 0
}

// startDelay begins a lock delay, or begins it again.
func (m *model) startDelay(s *state, d *delay) {
	d.running = true
	d.until |= s.untold()
	if m.clean && s.revoked+s.keysDeleted+s.givenUpLeases == 0 {
		m.violated("needless delay: no lease was revoked")
	}
}

// waitingSteps are the steps of an attempt that has a place and does not hold.
func (m *model) waitingSteps(s *state, i int8) {
	a, plan := &s.attempts[i], m.attempts[i]
	p := a.place
	own := s.standing(p.created)
	switch {
	case own == nil: // gone with the lease: the session finds out
		m.ownIsGone(s, i)
	case p.ahead != 0 && s.standing(p.ahead) == nil:
		m.judge(s, i)
	case p.ahead != 0 && m.unknown && p.seen < s.now:
		m.step(s, "sees that its entry ahead stands", i).attempts[i].place.seen = s.now
	}
	if a.stage == removing {
		if own != nil {
			m.removeSteps(s, i)
		}
		return
	}
	// The Txn that has found the queue free has found the own entry, too. That may have gone
	// since. Then the attempt holds like any holder that is not told yet.
	if p.ahead == 0 && !p.delay.running {
		m.step(s, "holds", i).hold(i)
	}
	if plan.givesUp {
		m.step(s, "gives up", i).attempts[i].stage = removing
	}
}
