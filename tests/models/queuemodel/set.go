package queuemodel

// Sets of entries: an attempt that takes several locks, or one lock in both modes. One Txn puts its entries, so
// they have one create revision. Each waits in its own queue and is judged and removed there by itself. An attempt
// waits only for smaller revisions, so sets that overlap cannot wait for each other in a circle.

// A member of a set is what one of its entries is for.
type member struct {
	lock   int8
	shared bool
}

func (m *model) member(n name) member { return m.members[n.attempt][n.member] }

// sets returns the members of each attempt's set.
func (s *scenario) sets() (sets [][]member) {
	for _, p := range s.attempts {
		set := p.set
		if set == nil {
			set = []member{{p.lock, p.shared}}
		}
		sets = append(sets, set)
	}
	return sets
}

// place returns a place of an attempt: k counts the places of its present try, and from maxMembers those of an earlier
// try whose entries are not removed yet.
//
//go:norace
func (s *state) place(i, k int8) *place {
	if k < maxMembers {
		return &s.attempts[i].places[k]
	}
	return &s.attempts[i].left[k-maxMembers]
}

// own returns the entry at a place.
//
//go:norace
func (s *state) own(i, k int8) version {
	if created := s.place(i, k).created; k < maxMembers {
		return version{name{i, s.attempts[i].try, k}, created}
	} else {
		return version{name{i, s.attempts[i].leftTry, k - maxMembers}, created}
	}
}

// anyNamed returns an entry of the attempt's present try that stands, or nil.
func (m *model) anyNamed(s *state, i int8) *entry {
	for k := range m.members[i] {
		if e := s.named(name{i, s.attempts[i].try, int8(k)}); e != nil {
			return e
		}
	}
	return nil
}

// allStand reports whether all entries of the attempt stand.
func (m *model) allStand(s *state, i int8) bool {
	for k := range m.members[i] {
		if s.standing(s.own(i, int8(k))) == nil {
			return false
		}
	}
	return true
}

// lacksEntry reports whether a read of the entries that the attempt has put at a revision finds that one is gone, or
// that an administrator has written into it: then it may go before the attempt holds and is told.
func (m *model) lacksEntry(s *state, i int8, created revision) bool {
	for k := range m.members[i] {
		own := version{name{i, s.attempts[i].try, int8(k)}, created}
		e := s.standing(own)
		if e == nil || e.noticed != unnoticed && m.broken != noticeIsOverlooked {
			return true
		}
	}
	return false
}

// lacksEntryFor is lacksEntry for the reads of an attempt that waits in one of its queues.
func (m *model) lacksEntryFor(s *state, i, k int8) bool {
	switch m.broken {
	case othersAreNotCompared:
		return s.standing(s.own(i, k)) == nil
	case setPutByTwoTxns, missingIsPutAgain:
		return !m.allStand(s, i)
	}
	return m.lacksEntry(s, i, s.place(i, k).created)
}

// findsEntryGone is the step of a waiting attempt that has lost one of its entries.
func (m *model) findsEntryGone(s *state, i int8) {
	if m.broken != missingIsPutAgain {
		m.queueAnew(m.step(s, "finds that one of its entries is gone, and queues anew", i), i)
		return
	}
	t := m.step(s, "puts the entry again that is missing", i)
	t.now++
	for k := range int8(len(m.members[i])) {
		if own := t.own(i, k); t.standing(own) == nil {
			own = t.putEntry(own.name, t.attempts[i].lease)
			*t.place(i, k) = place{created: own.created, ahead: m.nearest(t, own, t.now), others: m.othersAhead(t, own)}
		}
	}
}

// queueAnew queues the whole set at the back. To put only what is missing would give it entries of different revisions:
// two such sets can wait for each other.
func (m *model) queueAnew(s *state, i int8) {
	a := &s.attempts[i]
	for k := range int8(len(m.members[i])) {
		if s.standing(s.own(i, k)) == nil {
			*s.place(i, k) = place{}
		}
	}
	switch {
	case !m.attempts[i].again || a.requeued || a.try+1 == maxTries || s.sessions[m.attempts[i].session].closing:
		if a.stage = removing; a.places == [maxMembers]place{} {
			m.end(s, i)
		}
	default:
		m.passToSweeper(s, i)
		*a = attempt{
			try: a.try + 1, lease: a.lease, requeued: true, left: a.places, leftTry: a.try, suspects: a.suspects,
			queued: a.queued, newcomerTo: a.newcomerTo, behind: a.behind,
		}
	}
}

// downgradeSteps are the steps of a holder of one lock in both modes that goes on as a reader:
//
//	If   create(the exclusive entry) = its revision
//	Then delete it
//
// It is a reader from the moment it asks for it, answered or not. A copy that is carried out later does what the
// release does, or nothing.
func (m *model) downgradeSteps(s *state, i int8) {
	a := &s.attempts[i]
	if !m.attempts[i].downgrades {
		return
	}
	if a.stage == holding && !a.downgraded {
		m.step(s, "asks to go on as a reader", i).attempts[i].downgraded = true
	}
	if a.downgraded && s.standing(s.own(i, 0)) != nil {
		t := m.step(s, "has its exclusive entry deleted", i)
		t.deleteEntry(t.own(i, 0))
		if m.broken == downgradePutsAgain {
			t.deleteNow(t.own(i, 1))
			t.place(i, 1).created = t.putEntry(t.own(i, 1).name, a.lease).created
		}
	}
}

// holds reports whether the attempt believes that it holds a member of its set.
func (a *attempt) holds(k int8) bool { return a.stage == holding && !(a.downgraded && k == 0) }

// handSteps delete an entry of an attempt that waits, by hand. The model has no such deletion while a revoked holder is
// not told, nor one of an entry that may be held by: of these the poller alone tells.
func (m *model) handSteps(s *state, k int8) {
	e := &s.entries[k]
	a := &s.attempts[e.name.attempt]
	if s.deletedByHand == m.deletes || e.deleted != 0 || a.try != e.name.try || s.untold() != 0 {
		return
	}
	if a.stage == enqueuing && !m.replyIsUnread(s, e.name.attempt) || a.stage == waiting && a.waitsIn() >= 0 {
		t := m.step(s, "has an entry deleted by hand", e.name.attempt)
		t.deletedByHand++
		t.deleteEntry(e.version())
	}
}
