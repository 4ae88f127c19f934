package queuemodel

// The entry ahead is gone. Which entry is ahead now? And was it released, or did it go together
// with its lease?

// judge is for the entry at place k of attempt i. A set looks at one queue after the other. So no watch may have told
// when the entry ahead went in one of the later queues.
func (m *model) judge(s *state, i, k int8) {
	m.judgeKnown(m.step(s, "judges: the watch told when the entry ahead went", i), i, k)
	if m.unknown || k != 0 {
		m.judgeUnknown(m.step(s, "judges: no watch told when the entry ahead went", i), i, k)
	}
	if m.compacted {
		m.judgeCompacted(m.step(s, "judges: what it would have to read is compacted", i), i, k)
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
	m.judgeOthers(s, p, gone.deleted)
}

// judgeOthers delays an attempt whose queue was free at a revision, if one of the entries of the other mode
// that it waited for may have gone with its lease. For a writer these are readers: several hold at a time,
// and the watch told how one of them went. For a reader these are writers: one that gives up may leave
// while a reader stands ahead of it, and that does not keep the reader behind it from holding. All have
// gone by then, so a session key that was deleted later went otherwise.
func (m *model) judgeOthers(s *state, p *place, at revision) {
	if p.ahead.created == 0 && m.anyKeyMissingAt(s, p.others, at) && m.broken != readersAreNotRemembered {
		m.startDelay(s, &p.delay)
	}
}

// judgeUnknown judges without it. Any of the entries that stood ahead at the last look may have
// been the last to go, so the session keys of all of them must exist.
func (m *model) judgeUnknown(s *state, i, k int8) {
	p, own := s.place(i, k), s.own(i, k)
	ahead := m.leasesAhead(s, own, p.seen)
	switch m.broken {
	case unknownAsksPredecessorOnly:
		ahead = 1 << s.find(p.ahead).lease
	case laterQueuesAreReadNow:
		ahead = 0
	}
	if m.anyKeyMissing(s, ahead) {
		m.startDelay(s, &p.delay)
	}
	p.ahead, p.seen = m.nearest(s, own, s.now), s.now
	m.judgeOthers(s, p, s.now)
}

// judgeCompacted judges when nothing can be known of the past.
func (m *model) judgeCompacted(s *state, i, k int8) {
	p := s.place(i, k)
	if m.broken != compactedAsksPredecessorNow || s.leases[s.find(p.ahead).lease].key == 0 {
		m.startDelay(s, &p.delay)
	}
	p.ahead, p.seen = m.nearest(s, s.own(i, k), s.now), s.now
}

func (m *model) anyKeyMissing(s *state, set leaseSet) bool { return m.anyKeyMissingAt(s, set, s.now) }

func (m *model) anyKeyMissingAt(s *state, set leaseSet, at revision) bool {
	for l := range s.leases {
		if set.has(int8(l)) && s.leases[l].key == 0 && s.leases[l].gone <= at {
			return true
		}
	}
	return false
}
