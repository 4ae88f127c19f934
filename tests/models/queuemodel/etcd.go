package queuemodel

// What etcd does. Each change has its own revision.

// exclude reports whether two entries exclude each other: those for one lock, unless both are shared or both are of one
// set.
func (m *model) exclude(a, b name) bool {
	x, y := m.member(a), m.member(b)
	together := a.attempt == b.attempt && a.try == b.try && (a.member == b.member || !m.single)
	return x.lock == y.lock && !(x.shared && y.shared) && !together
}

// waitsFor reports whether an entry waits for another that was created before it.
func (m *model) waitsFor(s *state, own name, e *entry) bool {
	switch {
	case !m.exclude(own, e.name):
		return false
	case m.broken == readersPassWaitingWriters && m.member(own).shared:
		return s.attempts[e.name.attempt].stage == holding
	case m.broken == writersPassReaders && m.member(e.name).shared:
		return false
	}
	return true
}

// stoodAt reports whether e stood at a revision.
func (e *entry) stoodAt(at revision) bool {
	return e.created <= at && (e.deleted == 0 || e.deleted > at)
}

// nearest returns the youngest entry that conflicts with own, was created before it, and stood at a revision. Of two in
// one set etcd may return either.
func (m *model) nearest(s *state, own version, at revision) (found version) {
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.created < own.created && e.stoodAt(at) && m.waitsFor(s, own.name, e) &&
			(e.created > found.created || e.created == found.created && m.lastOfEqual) {
			found = e.version()
		}
	}
	return found
}

// leasesAhead returns the leases of all entries that conflict with own, were
// created before it, and stood at a revision.
func (m *model) leasesAhead(s *state, own version, at revision) (set leaseSet) {
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.created < own.created && e.stoodAt(at) && m.waitsFor(s, own.name, e) {
			set |= 1 << e.lease
		}
	}
	return set
}

// othersAhead returns the leases of the entries of the other mode that own waits for, as they stood when own was
// created.
func (m *model) othersAhead(s *state, own version) (set leaseSet) {
	shared := m.member(own.name).shared
	if shared && m.broken == writersAreNotRemembered {
		return 0
	}
	at := own.created
	if m.broken == readersAreReadNow {
		at = s.now
	}
	for k := range s.entryCount {
		e := &s.entries[k]
		if e.created < own.created && e.stoodAt(at) && m.waitsFor(s, own.name, e) && m.member(e.name).shared != shared {
			set |= 1 << e.lease
		}
	}
	return set
}

// deleteEntry deletes an entry, if it stands.
func (s *state) deleteEntry(v version) {
	s.now++
	s.deleteNow(v)
}

// deleteNow deletes an entry in a Txn that has begun its revision already.
func (s *state) deleteNow(v version) {
	if e := s.standing(v); e != nil {
		e.deleted = s.now
		s.freedEarly = s.freedEarly || e.kept != notKept
		e.keyAtDeletion = s.leases[e.lease].key != 0
		e.keyBeforeDeletion = e.keyAtDeletion
		e.noticed, e.until, e.soonGone = unnoticed, 0, false // they matter no more
	}
}

// putEntry puts an entry in a Txn that has begun its revision already.
func (s *state) putEntry(n name, lease int8) version {
	s.entries[s.entryCount] = entry{name: n, lease: lease, created: s.now}
	s.entryCount++
	return version{n, s.now}
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
			e.noticed, e.until, e.soonGone = unnoticed, 0, false
		}
	}
	for i := range s.attempts { // its suspects went with it
		if a := &s.attempts[i]; a.lease == l {
			a.suspects = [maxTries][maxMembers]suspect{}
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
//	If   create(each own entry) = 0, mod(session key) = gate [hand-off: create(released entry) = its revision]
//	Then [delete the released entry], read near in each queue, put the own entries
func (m *model) apply(s *state, c *enqueueCopy) {
	first, end := int8(0), int8(len(m.members[c.attempt]))
	if m.broken == setPutByTwoTxns && end > 1 {
		if first = 1; !c.accepted {
			first, end = 0, 1
		}
	}
	c.answered = end == int8(len(m.members[c.attempt]))
	key := s.leases[c.lease].key
	passes := key == c.gate || m.broken == gateIsNotCompared || m.broken == missingKeyPasses && key == 0
	for k := first; k < end; k++ {
		passes = passes && s.named(name{c.attempt, c.try, k}) == nil
	}
	if !passes || c.replaces != 0 && s.standing(c.released()) == nil {
		return
	}
	s.now++
	s.deleteNow(c.released())
	for k := first; k < end; k++ {
		own := s.putEntry(name{c.attempt, c.try, k}, c.lease)
		c.contended = c.contended || m.nearest(s, own, s.now).created != 0
	}
	c.accepted, c.created = true, s.now
	// A second copy puts them anew, if those of the first were removed before the attempt knew of them.
	if a := &s.attempts[c.attempt]; !(a.queued && a.requeued) && a.stage == enqueuing && a.try == c.try {
		a.queued, a.newcomerTo = true, s.untold()
		m.noteBehind(s, c.attempt)
	}
}

// noteBehind records, for check, which entries an attempt has queued behind.
func (m *model) noteBehind(s *state, i int8) {
	if !m.behind {
		return
	}
	a := &s.attempts[i]
	for k := range s.entryCount {
		e := &s.entries[k]
		for own := range int8(len(m.members[i])) {
			if e.deleted == 0 && e.created < s.now && m.exclude(name{i, a.try, own}, e.name) {
				a.behind |= a.newcomerTo &^ s.attempts[e.name.attempt].newcomerTo
			}
		}
	}
}

// released returns the entry that a hand-off deletes.
func (c *enqueueCopy) released() version { return released(c.attempt, c.try, c.replaces) }

func released(attempt, try int8, created revision) version {
	return version{name{attempt, try - 1, 0}, created}
}
