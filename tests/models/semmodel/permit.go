package semmodel

// The steps of an attempt, from its enqueue to its end.

// lateCopy: the session removes what a copy of its put does that arrives when the attempt is over.
const lateCopy = "has a copy of its put arrive late"

func (m *model) attemptSteps(s *state, i int8) {
	a := s.attempts[i]
	if a.delay.running && a.delay.until == 0 {
		m.must(s, i, "has waited for its lock delay", func(t *state) { t.attempts[i].delayIsOver() })
	}
	switch a.stage {
	case idle:
		switch {
		case !s.leases[leaseOf(i, a.try)].alive: // etcd refuses it
		case m.attempts[i].weight > s.limit:
			m.must(s, i, "is refused: its weight is above the limit", func(t *state) {
				t.attempts[i] = attempt{stage: done, try: a.try}
			})
		default:
			m.choose(s, i, "puts its entry", func(t *state) {
				m.enqueue(t, i)
				m.place(t, i, t.limit)
			})
			if m.lossy {
				m.choose(s, i, "puts its entry, and has no reply", func(t *state) { m.enqueue(t, i) })
			}
		}
	case unplaced:
		if m.compacted {
			m.must(s, i, "finds that what stood ahead of its entry is compacted", func(t *state) { m.placeUnknown(t, i) })
		}
		for _, most := range mayRead(s) {
			m.must(s, i, "finds its entry, and what stood ahead then", func(t *state) { m.place(t, i, most) })
		}
	case far:
		m.farSteps(s, i)
	case first:
		m.firstSteps(s, i)
	case leaving:
		m.leavingSteps(s, i)
	case done:
		if m.latePuts && !a.late && s.leases[leaseOf(i, a.try)].alive && m.attempts[i].weight <= s.limit {
			m.choose(s, i, lateCopy, func(t *state) {
				t.attempts[i].late = true
				m.enqueue(t, i)
				t.attempts[i].stage = leaving
			})
		}
	case holding:
		m.choose(s, i, "releases", func(t *state) {
			t.remove(a.created)
			t.attempts[i] = attempt{stage: done, try: a.try, late: a.late}
		})
	}
	if m.attempts[i].givesUp && (a.stage == unplaced || a.waits()) {
		m.choose(s, i, "gives up", func(t *state) { t.attempts[i].stage = leaving })
	}
}

func (a *attempt) delayIsOver() {
	a.delay.running = false
	switch a.stage {
	case first:
		a.base = max(a.base, a.due)
	case delayed:
		a.stage = holding
	}
}

func (m *model) startDelay(s *state, a *attempt) {
	if m.clean && s.revoked+s.crashed == 0 {
		m.violated("needless delay: no lease was revoked")
	}
	a.delay.running = true
	a.delay.until |= s.untold()
}

func (s *state) remove(created revision) {
	if e := s.standing(created); e != nil {
		s.now++
		e.deleted = s.now
	}
}

// enqueue puts the entry, if the limit is the one that the attempt knows.
func (m *model) enqueue(s *state, i int8) {
	a := &s.attempts[i]
	if !a.queued {
		a.queued, a.newcomerTo = true, s.untold()
	}
	s.now++
	a.stage, a.read = unplaced, s.now
	a.created, a.heard, a.due, a.limit, a.limitAt = s.now, s.now, s.now, s.limit, s.limitAt
	s.entries[s.entryCount] = entry{attempt: i, lease: leaseOf(i, a.try), created: s.now}
	s.entryCount++
	if m.look(s, a.created, s.now, maxEntries).nearest == nil {
		m.checkAdmission(s, i) // that it holds it learns later, whatever the limit is by then
	}
}

// place reads what stood ahead when the entry was put: in the same Txn, or afterwards if that had no reply. By then the
// limit may be another one. Those behind judge by the limit of then whether this entry holds or waits for its mark. So
// it holds without one only if the limit has not changed since, or if nothing was ahead.
//
// It reads the oldest permits only, one more than most, which is how many may be held. In the Txn that puts the entry
// that is the limit, which it compares.
func (m *model) place(s *state, i int8, most int8) {
	a := &s.attempts[i]
	l := m.look(s, a.created, a.created, most+1)
	delays := a.requeued && m.broken != requeuedWithoutDelay
	asPut := a.limitAt == s.limitAt || m.broken == placedByLimitOfNow
	switch {
	case l.nearest == nil || asPut && m.fits(l.sum, m.attempts[i].weight, s.limit):
		if l.nearest != nil {
			m.checkAdmission(s, i)
		}
		if !delays {
			a.hold()
			return
		}
		a.stage, a.waited = delayed, true
	case m.mayHold(s, l) || l.nearest.mark != 0 && l.nearest.marked <= a.created:
		a.stage, a.waited = first, true
		if !delays {
			a.base = a.created
		}
	default:
		a.stage, a.ahead, a.waited = far, l.nearest.created, true
	}
	if delays {
		m.startDelay(s, a)
	}
	if a.stage != delayed {
		m.sawLimit(s, i)
	}
}

// placeUnknown: the entry is of no use. Those behind it know whether it holds or puts a mark, and it does not. So it
// leaves, and its session queues again.
func (m *model) placeUnknown(s *state, i int8) {
	a := &s.attempts[i]
	a.stage = leaving
	if sum := m.look(s, a.created, s.now, maxEntries).sum; m.broken == placedByWhatStandsNow &&
		m.fits(sum, m.attempts[i].weight, s.limit) {
		a.stage, a.waited = delayed, true
		m.startDelay(s, a)
	}
}

// farSteps are those of an attempt that waits for the entry ahead to be marked, or to go.
func (m *model) farSteps(s *state, i int8) {
	a := s.attempts[i]
	ahead := s.created(a.ahead)
	if ahead.mark != 0 {
		m.must(s, i, "sees the mark of the entry ahead", func(t *state) { m.follow(t, i, ahead.mark) })
		if m.compacted && !m.traced {
			m.must(s, i, "sees the mark of the entry ahead, and its history is compacted", func(t *state) {
				m.follow(t, i, t.now)
				m.lookCompacted(t, i)
			})
		}
	}
	if ahead.deleted != 0 && (ahead.mark == 0 || m.unknown) {
		for _, most := range mayRead(s) {
			m.must(s, i, "sees that the entry ahead has gone", func(t *state) { m.aheadIsGone(t, i, ahead.deleted, most) })
			if m.unknown || m.compacted {
				m.must(s, i, "finds that the entry ahead has gone", func(t *state) { m.aheadIsGone(t, i, t.now, most) })
			}
		}
	}
	if m.broken == firstByPosition && ahead.deleted == 0 && m.mayHold(s, m.look(s, a.created, s.now, s.high+1)) {
		m.must(s, i, "sees that the entry ahead may hold", func(t *state) { m.follow(t, i, t.now) })
	}
}

// follow makes an attempt the first waiter, from a revision on.
func (m *model) follow(s *state, i int8, from revision) {
	if m.broken == markIsReadNow {
		from = s.now
	}
	a := &s.attempts[i]
	from = max(from, a.created) // no read before that shows all that are ahead
	a.stage, a.ahead = first, 0
	a.base, a.heard, a.due = from, from, max(a.due, from)
	a.read, a.looked = from, s.now
}

// aheadIsGone finds what stood ahead when the entry ahead went.
func (m *model) aheadIsGone(s *state, i int8, at revision, most int8) {
	a := &s.attempts[i]
	l := m.look(s, a.created, at, most+1)
	switch {
	case l.nearest != nil && l.nearest.mark != 0 && l.nearest.marked <= at:
		// Its mark does not speak of those that have gone between the two. One may have held: there was room for it
		// when it was put, while the nearest one had not asked yet.
		from := a.created
		if m.broken == markSpeaksOfAll {
			from = l.nearest.mark
		}
		m.follow(s, i, from)
	case !m.mayHold(s, l): // it waits, and so it will be marked, or go
		a.ahead = l.nearest.created
	default:
		m.follow(s, i, at)
		if m.broken != goneWithoutMarkIsClean {
			a.base = 0
			m.startDelay(s, a)
		}
	}
}

// firstSteps are those of an attempt that watches the permits ahead, and the limit.
func (m *model) firstSteps(s *state, i int8) {
	a, own := s.attempts[i], s.standing(s.attempts[i].created)
	if gone := m.nextGone(s, &a); gone != 0 {
		m.must(s, i, "hears that a permit ahead has gone", func(t *state) { t.attempts[i].heard = gone })
	}
	if a.limitAt != s.limitAt && m.broken != limitIsNotWatched {
		m.must(s, i, "hears of the limit", func(t *state) { m.sawLimit(t, i) })
	}
	if m.compacted && m.traced && own != nil {
		m.choose(s, i, firstLookCompacted, func(t *state) { m.lookCompacted(t, i) })
	}
	sum := m.sumHeard(s, &a)
	if m.broken == waitersArePassed {
		sum = m.held(s)
	}
	if own == nil || a.delay.running || !m.fits(sum, m.attempts[i].weight, a.limit) {
		return
	}
	m.must(s, i, "asks whether it holds", func(t *state) { m.ask(t, i) })
	if m.unknown && !m.mustDelay(s, &a) && m.endedSince(s, &a) {
		m.must(s, i, presumesRevoked, func(t *state) {
			a := &t.attempts[i]
			a.due = a.heard
			m.startDelay(t, a)
		})
	}
	if m.lossy && own.mark == 0 {
		m.choose(s, i, "asks whether it holds, and has no reply", func(t *state) {
			if a := &t.attempts[i]; !m.mustDelay(t, a) && a.limitAt == t.limitAt {
				m.checkAdmission(t, i)
				t.putMark(a.created, a.heard)
			}
		})
	}
}

// firstLookCompacted: what stood ahead when it became the first waiter cannot be read. In a search that happens right
// after it has seen the mark; a process says both.
const firstLookCompacted = "looks, and what has gone since is compacted"

func (m *model) lookCompacted(s *state, i int8) {
	a := &s.attempts[i]
	a.base, a.heard, a.due = s.now, s.now, s.now
	if m.broken != compactedIsClean {
		a.base = 0
		m.startDelay(s, a)
	}
}

// sawLimit tells an attempt of the limit. One that is too heavy for it leaves.
func (m *model) sawLimit(s *state, i int8) {
	a := &s.attempts[i]
	a.limit, a.limitAt = s.limit, s.limitAt
	if m.attempts[i].weight > s.limit && m.broken != tooHeavyWaits {
		a.stage = leaving
	}
}

// sumHeard returns the weights of the entries ahead, by what an attempt has heard.
func (m *model) sumHeard(s *state, a *attempt) (sum int8) {
	for k := range s.entryCount {
		if e := &s.entries[k]; e.created < a.created && (e.deleted == 0 || a.knows(e) && e.deleted > a.heard) {
			sum += m.attempts[e.attempt].weight
		}
	}
	return sum
}

// knows reports whether an attempt hears that a permit ahead goes.
func (a *attempt) knows(e *entry) bool {
	return e.created < a.created && (e.created <= a.read || e.deleted > a.looked)
}

// nextGone returns the revision of the first deletion ahead that an attempt has not heard of.
func (m *model) nextGone(s *state, a *attempt) (next revision) {
	for k := range s.entryCount {
		if e := &s.entries[k]; a.knows(e) && e.deleted > a.heard && (next == 0 || e.deleted < next) {
			next = e.deleted
		}
	}
	return next
}

// mustDelay reports whether a permit ahead went together with its session key, and was not judged before.
func (m *model) mustDelay(s *state, a *attempt) (delays bool) {
	for k := range s.entryCount {
		e := &s.entries[k]
		if a.knows(e) && e.deleted > max(a.base, a.due) && e.deleted <= a.heard {
			revoked := e.revoked && !s.leases[e.lease].alive // in a record a session key may be put again
			delays = delays && m.broken != onlyTheLastIsJudged || revoked
		}
	}
	return delays && m.broken != nothingDelays
}

// presumesRevoked: it does not know when the permit went, and the session key has gone since.
const presumesRevoked = "asks whether it holds, and takes a permit that was released for one that was revoked"

// endedSince reports whether the session of a permit ahead has ended that went and was not judged before.
func (m *model) endedSince(s *state, a *attempt) bool {
	for k := range s.entryCount {
		e := &s.entries[k]
		if a.knows(e) && e.deleted > max(a.base, a.due) && e.deleted <= a.heard && !s.leases[e.lease].alive {
			return true
		}
	}
	return false
}

// ask is the Txn by which a waiter begins to hold. It knows by its watch that its weight fits, and nothing joins ahead
// of it:
//
//	If   create(own entry) = its revision, mod(limit) = as heard, the session keys of those that went stand
//	Then put the own entry, with a mark
func (m *model) ask(s *state, i int8) {
	a := &s.attempts[i]
	own := s.standing(a.created)
	switch {
	case own.mark != 0: // an earlier copy, whose reply was lost
		a.stage = holding
		return
	case a.limitAt != s.limitAt && m.broken != limitIsNotCompared:
		m.sawLimit(s, i)
		return
	case m.mustDelay(s, a):
		a.due = a.heard
		m.startDelay(s, a)
		if m.broken == delayIsWaitedFor {
			a.base = a.due
		}
		if m.broken == markBeforeDelay {
			s.putMark(a.created, a.heard)
		}
		return
	}
	a.base = a.heard
	mark := a.base
	if m.broken == markSaysNow {
		mark = s.now
	}
	m.checkAdmission(s, i)
	a.hold()
	if m.broken != marksNothing {
		s.putMark(a.created, mark)
	}
}

func (s *state) putMark(created, mark revision) {
	s.now++
	e := s.standing(created)
	e.mark, e.marked = mark, s.now
}

// leavingSteps remove the entry of an attempt that has not held. The first waiter marks it before: the attempt behind
// is to go on from the same base. Without a base it leaves no mark, and then the attempt behind delays.
func (m *model) leavingSteps(s *state, i int8) {
	a := s.attempts[i]
	own := s.standing(a.created)
	if own == nil {
		return // gone with the lease: the session finds out
	}
	base := a.base
	if base != 0 && !a.delay.running && !m.mustDelay(s, &a) || m.broken == leaveSaysHeard {
		base = a.heard
	}
	if own.mark == 0 && base != 0 && m.broken != leavesWithoutMark {
		m.must(s, i, "marks its entry, to leave", func(t *state) { t.putMark(a.created, base) })
		return
	}
	m.must(s, i, "removes its entry", func(t *state) {
		t.remove(a.created)
		t.attempts[i] = attempt{stage: done, try: a.try, late: a.late}
	})
}
