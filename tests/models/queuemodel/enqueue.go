package queuemodel

// An attempt queues: it sends the Txn that puts its entries, and reads the reply.

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
		if c.lease%2 == 1 && m.beganBefore && !s.attempts[i].requeued {
			t := m.step(s, "sends its enqueue: it began before its session lost a lease", i)
			t.attempts[i].lease, t.attempts[i].gate, t.attempts[i].requeued = c.lease, c.gate, true
			t.send(i)
		}
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
		if s.attempts[i].gate != c.gate {
			t := m.step(s, "has no reply and sends its enqueue with the new gate", i)
			t.stopAwaiting(i)
			t.attempts[i].gate = c.gate
			t.send(i)
		}
		if awaits && m.beside {
			t := m.step(s, "has no reply yet and sends a copy of its enqueue beside the first", i)
			t.send(i)
			t.copies[t.copyCount-1].awaited = false
			t.attempts[i].unanswered = max(t.attempts[i].unanswered, t.attempts[i].gate)
		}
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
	switch {
	case s.sessions[m.attempts[i].session].closing:
		s.attempts[i].stage = removing
	case m.mayHold(s, i):
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
