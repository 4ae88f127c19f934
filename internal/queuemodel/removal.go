package queuemodel

// Forced removal. An administrator puts a notice into the first entry of a queue. The holder's poller
// finds it. Then, at any later time, the administrator moves the entry to a lease of its own; and when
// that ends, the entry goes. The name of the entry does not change: it is judged by the session key of
// the session that put it.
//
// Like a lock delay, the lease of the move has no time here. It lasts for so long that the attempt whose
// entry it is cannot hold by it any more: it was told, or it has waited for its lock delay and was told
// then. Sessions whose leases were revoked before the notice know of that.

// noticed says how far a removal of an entry has come.
type noticed int8

const (
	unnoticed noticed = iota
	asked             // a notice stands in it
	takenAway         // it is on a lease of its own
)

func (m *model) removalSteps(s *state, k int8) {
	e := &s.entries[k]
	if e.deleted != 0 || m.removals == 0 {
		return
	}
	first := m.nearest(s, e, s.now) == 0 || m.broken == waiterIsMoved
	switch {
	case e.noticed == unnoticed && s.removals < m.removals && first:
		t := m.step(s, "has its entry noticed by an administrator", e.attempt)
		t.removals++
		t.entries[k].noticed, t.entries[k].until = asked, s.untold()
		switch m.broken {
		case removalDeletes:
			t.deleteEntry(e.created)
		case moveIsTheNotice:
			t.entries[k].noticed = takenAway
		}
	case e.noticed == asked:
		m.step(s, "has its entry moved to another lease by an administrator", e.attempt).entries[k].noticed = takenAway
	case e.noticed == takenAway && m.moveMayEnd(s, e):
		m.step(s, "has its entry go with the lease it was moved to", e.attempt).deleteEntry(e.created)
	}
	if a := &s.attempts[e.attempt]; e.noticed != unnoticed && a.stage == holding && a.place.created == e.created {
		m.step(s, "finds the notice in its entry", e.attempt).attempts[e.attempt].quit()
	}
}

// moveMayEnd reports whether the lease that an entry was moved to may have ended.
func (m *model) moveMayEnd(s *state, e *entry) bool {
	if m.broken == moveIsTheNotice {
		return true // it was granted before, and carried out late
	}
	a := &s.attempts[e.attempt]
	if a.try != e.try || a.stage == idle || a.stage == done {
		return e.until == 0
	}
	if m.broken == moveWithoutDelay && a.stage == waiting {
		return true
	}
	mayHold := a.stage == holding || a.stage == enqueuing || a.stage == waiting && a.place.ahead == 0
	return e.until == 0 && !mayHold
}

// ownIsGone are the steps of an attempt whose entry an administrator has removed.
func (m *model) ownIsGone(s *state, i int8) {
	if m.removals > 0 && s.leases[s.attempts[i].lease].alive {
		m.end(m.step(s, "finds its entry gone, and ends", i), i)
	}
}
