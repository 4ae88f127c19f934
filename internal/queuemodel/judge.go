package queuemodel

// JUDGE: the predecessor's entry has gone. Who is ahead now, and was it a
// release, or did the entry go together with its lease?

func (m *model) judge(s *state, i int8) {
	m.judgeKnown(m.step(s, "judges: the watch told when its predecessor went", i), i)
	if m.unknown {
		m.judgeUnknown(m.step(s, "judges: no watch told when its predecessor went", i), i)
	}
	if m.compacted {
		m.judgeCompacted(m.step(s, "judges: what it would have to read is compacted", i), i)
	}
}

// judgeKnown: the watch's event has the revision of the deletion. One Txn reads
// who was near, and the predecessor's session key, at that revision.
func (m *model) judgeKnown(s *state, i int8) {
	p := &s.attempts[i].place
	gone := s.created(p.ahead)
	at := gone.deleted
	if m.broken == nearIsReadNow {
		at = s.now
	}
	p.ahead, p.seen = m.near(s, s.created(p.created), at), at
	revoked := !gone.keyAtDeletion
	switch m.broken {
	case keyIsReadNow:
		revoked = s.leases[gone.lease].key == 0
	case keyMustGoWithEntry, closeDeletesKeyFirst:
		revoked = revoked && gone.keyBeforeDeletion
	case nothingDelays:
		revoked = false
	}
	if p.ahead == 0 && revoked {
		m.startDelay(s, &p.delay)
	}
}

// judgeUnknown: any of those that stood ahead when the predecessor was last
// seen may have been ahead of it when it went, so each key must stand.
func (m *model) judgeUnknown(s *state, i int8) {
	p := &s.attempts[i].place
	own := s.created(p.created)
	ahead := m.leasesAhead(s, own, p.seen)
	if m.broken == unknownAsksPredecessorOnly {
		ahead = 1 << s.created(p.ahead).lease
	}
	if m.anyKeyMissing(s, ahead) {
		m.startDelay(s, &p.delay)
	}
	p.ahead, p.seen = m.near(s, own, s.now), s.now
}

// judgeCompacted: nothing can be known of the past.
func (m *model) judgeCompacted(s *state, i int8) {
	p := &s.attempts[i].place
	if m.broken != compactedAsksPredecessorNow || s.leases[s.created(p.ahead).lease].key == 0 {
		m.startDelay(s, &p.delay)
	}
	p.ahead, p.seen = m.near(s, s.created(p.created), s.now), s.now
}

func (m *model) anyKeyMissing(s *state, set leaseSet) bool {
	for l := range s.leases {
		if set.has(int8(l)) && s.leases[l].key == 0 {
			return true
		}
	}
	return false
}
