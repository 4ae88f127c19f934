package queuemodel

// What etcd does. Each change has its own revision.

// conflicts reports whether two entries exclude each other.
func (m *model) conflicts(a, b *entry) bool { return m.exclude(a.attempt, b.attempt) }

// exclude reports whether two attempts exclude each other: those for one lock, unless both are shared.
func (m *model) exclude(i, k int8) bool {
	a, b := m.attempts[i], m.attempts[k]
	return a.lock == b.lock && !(a.shared && b.shared)
}

// stoodAt reports whether e stood at a revision.
func (e *entry) stoodAt(at revision) bool {
	return e.created <= at && (e.deleted == 0 || e.deleted > at)
}

// nearest returns the create revision of the youngest entry that conflicts with own, was created
// before it, and stood at a revision; 0 if there is none.
func (m *model) nearest(s *state, own *entry, at revision) (found revision) {
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.created < own.created && e.stoodAt(at) && m.conflicts(e, own) {
			found = max(found, e.created)
		}
	}
	return found
}

// leasesAhead returns the leases of all entries that conflict with own, were
// created before it, and stood at a revision.
func (m *model) leasesAhead(s *state, own *entry, at revision) (set leaseSet) {
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.created < own.created && e.stoodAt(at) && m.conflicts(e, own) {
			set |= 1 << e.lease
		}
	}
	return set
}

// othersAhead returns the leases of the entries of the other mode that attempt i waits for, whose entry
// was created at a revision, as they stood at that revision.
func (m *model) othersAhead(s *state, i int8, created revision) (set leaseSet) {
	shared := m.attempts[i].shared
	if shared && m.broken == writersAreNotRemembered {
		return 0
	}
	at := created
	if m.broken == readersAreReadNow {
		at = s.now
	}
	for k := range s.entryCount {
		e := &s.entries[k]
		if e.created < created && e.stoodAt(at) && m.exclude(e.attempt, i) && m.attempts[e.attempt].shared != shared {
			set |= 1 << e.lease
		}
	}
	return set
}

// deleteEntry deletes the entry created at a revision, if it stands.
func (s *state) deleteEntry(created revision) {
	s.now++
	s.deleteNow(created)
}

// deleteNow deletes an entry in a Txn that has begun its revision already.
func (s *state) deleteNow(created revision) {
	if e := s.standing(created); e != nil {
		e.deleted = s.now
		s.freedEarly = s.freedEarly || e.kept != notKept
		e.keyAtDeletion = s.leases[e.lease].key != 0
		e.keyBeforeDeletion = e.keyAtDeletion
		e.noticed, e.until = unnoticed, 0 // they matter no more
	}
}

// putEntry puts an entry in a Txn that has begun its revision already.
func (s *state) putEntry(attempt, try, lease int8) *entry {
	s.entries[s.entryCount] = entry{attempt: attempt, try: try, lease: lease, created: s.now}
	s.entryCount++
	return &s.entries[s.entryCount-1]
}

// revoke ends a lease: its entries and its session key go at one revision.
func (s *state) revoke(l int8) {
	s.now++
	before := s.leases[l].key != 0
	s.leases[l].alive = false
	s.deleteSessionKey(l)
	for i := range s.entryCount {
		if e := &s.entries[i]; e.deleted == 0 && e.lease == l && e.kept != moved && e.noticed != takenAway {
			e.deleted, e.keyBeforeDeletion, e.kept, e.moving = s.now, before, notKept, false
			e.noticed, e.until = unnoticed, 0
		}
	}
	for i := range s.attempts { // its suspects went with it
		if a := &s.attempts[i]; a.lease == l {
			a.suspects = [maxTries]suspect{}
		}
	}
}

// deleteSessionKey deletes a session key, unless it is gone, at the present revision.
func (s *state) deleteSessionKey(l int8) {
	if s.leases[l].key != 0 {
		s.leases[l].key, s.leases[l].gone = 0, s.now
	}
}

func (s *state) putSessionKey(l int8) {
	s.now++
	s.leases[l].key, s.leases[l].gone = s.now, 0
}

// apply is the enqueue's Txn:
//
//	If   create(own entry) = 0, mod(session key) = gate [hand-off: create(released entry) = its revision]
//	Then [delete the released entry], read near, put the own entry
func (m *model) apply(s *state, c *enqueueCopy) {
	c.answered = true
	key := s.leases[c.lease].key
	passes := key == c.gate || m.broken == gateIsNotCompared || m.broken == missingKeyPasses && key == 0
	if !passes || s.named(c.attempt, c.try) != nil || c.replaces != 0 && s.standing(c.replaces) == nil {
		return
	}
	s.now++
	s.deleteNow(c.replaces)
	own := s.putEntry(c.attempt, c.try, c.lease)
	c.accepted, c.created, c.ahead = true, own.created, m.nearest(s, own, s.now)
	if a := &s.attempts[c.attempt]; !a.queued && a.stage == enqueuing && a.try == c.try {
		a.queued, a.newcomerTo = true, s.untold()
	}
}
