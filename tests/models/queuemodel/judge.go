package queuemodel

// The entry ahead is gone. Which entry is ahead now? And was it released, or did it go together
// with its lease?

// judge is for the entry at place k of attempt i. A set looks at one queue after the other. So no watch may have told
// when the entry ahead went in one of the later queues.
func (m *model) judge(s *state, i, k int8) {
	m.past = 0
	m.judgeEach(s, i, k)
	if past := m.toldUpTo(s); m.looksBack && past > 0 {
		m.past = past
		m.judgeEach(s, i, k)
	}
}

// toldUpTo returns the latest revision that any attempt may have seen a lock delay ago: the sessions of all leases that
// were revoked by then have been told. 0: no lease has ended by then.
func (m *model) toldUpTo(s *state) revision {
	past, ended := s.now, false
	for l := range s.leases {
		if s.untold().has(int8(l)) && m.broken != anyLookIsOldEnough {
			past = min(past, max(s.leases[l].gone, 1)-1)
		}
	}
	for _, l := range s.leases {
		ended = ended || l.granted && l.key == 0 && l.gone <= past
	}
	if !ended {
		return 0
	}
	return past
}

// long ends the name of a step that rests on what the attempt knew a lock delay ago.
const long = ": what ended long ago has been told"

// compactedStep is also the step of an attempt whose search of history takes too long.
const compactedStep = "judges: what it would have to read is compacted"

func (m *model) judgeEach(s *state, i, k int8) {
	known, unknown := "judges: the watch told when the entry ahead went", "judges: no watch told when the entry ahead went"
	if m.past > 0 {
		known, unknown = known+long, unknown+long
	}
	m.judgeKnown(m.step(s, known, i), i, k)
	if m.unknown || k != 0 {
		m.judgeUnknown(m.step(s, unknown, i), i, k)
	}
	if m.compacted {
		m.judgeCompacted(m.step(s, compactedStep, i), i, k)
	}
}

// judgeKnown judges with the revision of the deletion, which the watch's event tells. One Txn reads
// the nearest entry and the session key of the one that went, both at that revision.
func (m *model) judgeKnown(s *state, i, k int8) {
	p := s.place(i, k)
	gone := s.find(p.ahead)
	at := gone.deleted
	if m.broken == nearestIsReadNow {
		at = s.now
	}
	p.ahead, p.seen = m.nearest(s, s.own(i, k), at), at
	if m.broken == nothingIsReadAfterAWake {
		p.ahead = version{}
	}
	revoked := !gone.keyAtDeletion
	switch m.broken {
	case keyIsReadNow:
		revoked = s.leases[gone.lease].key == 0
	case keyMustGoWithEntry, closeDeletesKeyFirst:
		revoked = revoked && gone.keyBeforeDeletion
	case nothingDelays:
		revoked = false
	case delayByTheLeaseOfTheEntry:
		revoked = revoked || gone.kept == moved
	}
	if p.ahead.created == 0 && revoked {
		m.startDelay(s, &p.delay)
	}
	m.judgeOthers(s, i, k, gone.deleted)
}

// judgeOthers delays an attempt whose queue was free at a revision, if one of the entries of the other mode
// that it waited for may have gone with its lease. For a writer these are readers: several hold at a time,
// and the watch told how one of them went. For a reader these are writers: one that gives up may leave
// while a reader stands ahead of it, and that does not keep the reader behind it from holding.
func (m *model) judgeOthers(s *state, i, k int8, at revision) {
	p := s.place(i, k)
	if p.ahead.created == 0 && m.anyHeldAtItsEnd(s, s.own(i, k), p.others, at) && m.broken != readersAreNotRemembered {
		m.startDelay(s, &p.delay)
	}
}

// judgeUnknown judges without it. An entry that is ahead now is waited for next: it goes last, or behind the one that
// held. Otherwise any of the entries that stood ahead at the last look may have been the last to go, so none of them
// may have gone with its lease.
func (m *model) judgeUnknown(s *state, i, k int8) {
	p, own := s.place(i, k), s.own(i, k)
	ahead := m.leasesAhead(s, own, p.seen)
	switch m.broken {
	case unknownAsksPredecessorOnly:
		ahead = 1 << s.find(p.ahead).lease
	case laterQueuesAreReadNow:
		ahead = 0
	}
	p.ahead, p.seen = m.nearest(s, own, s.now), s.now
	if p.ahead.created == 0 && m.anyHeldAtItsEnd(s, own, ahead, s.now) {
		m.startDelay(s, &p.delay)
	}
	m.judgeOthers(s, i, k, s.now)
}

// judgeCompacted judges when nothing can be known of the past.
func (m *model) judgeCompacted(s *state, i, k int8) {
	p := s.place(i, k)
	if m.broken != compactedAsksPredecessorNow || s.leases[s.find(p.ahead).lease].key == 0 {
		m.startDelay(s, &p.delay)
	}
	p.ahead, p.seen = m.nearest(s, s.own(i, k), s.now), s.now
}

func (m *model) anyKeyMissing(s *state, set leaseSet) bool {
	for l := range s.leases {
		if set.has(int8(l)) && s.leases[l].key == 0 {
			return true
		}
	}
	return false
}

// anyHeldAtItsEnd reports whether one of some leases may have had an entry ahead of own that held when the lease ended,
// at a revision or before. None did whose session key stood then. One that the attempt knows to have ended a lock delay
// ago does not count: its session has been told.
func (m *model) anyHeldAtItsEnd(s *state, own version, set leaseSet, at revision) bool {
	for l := range int8(len(s.leases)) {
		ended := set.has(l) && s.leases[l].key == 0 && s.leases[l].gone <= at
		if ended && !m.endedBy(s, own, l, m.past) && m.heldAtItsEnd(s, own, l) {
			return true
		}
	}
	return false
}

// endedBy reports whether the session key of a lease and all its entries ahead of own had gone by a revision.
func (m *model) endedBy(s *state, own version, l int8, at revision) bool {
	if s.leases[l].gone > at {
		return false
	}
	for i := range s.entryCount {
		if e := &s.entries[i]; e.lease == l && e.created < own.created && e.stoodAt(at) && m.broken != keyAloneEndsALease {
			return false
		}
	}
	return true
}

// heldAtItsEnd is anyHeldAtItsEnd for a lease whose session key is gone. When the key stood last, the lease was alive,
// so the entries that had gone by then had left in order. None of the others held if all went with the key, and an
// older entry that each of them waited for stood even then.
func (m *model) heldAtItsEnd(s *state, own version, l int8) bool {
	if m.broken == endedWhileWaitingDelays {
		return true
	}
	gone := s.leases[l].gone
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.lease != l || e.created >= own.created || !m.waitsFor(s, own.name, e) || e.deleted != 0 && e.deleted < gone {
			continue
		}
		together := e.deleted == gone || m.broken == keyGoneByHandEndsALease
		waited := m.waitedAt(s, own, e, gone) || m.broken == endedCountsAsWaiting
		if !(together && waited) && m.broken != endedCountsAsLeft {
			return true
		}
	}
	return false
}

// waitedAt reports whether an entry that e waits for, and own as well, stood at a revision.
func (m *model) waitedAt(s *state, own version, e *entry, at revision) bool {
	for i := range s.entryCount {
		older := &s.entries[i]
		if older.created < e.created && older.stoodAt(at) && m.waitsFor(s, e.name, older) && m.waitsFor(s, own.name, older) {
			return true
		}
	}
	return false
}
