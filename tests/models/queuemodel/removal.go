package queuemodel

// Forced removal. An administrator puts a notice into the first entry of a queue. The holder's poller
// finds it. Then, at any later time, the administrator moves the entry to a lease of its own; and when
// that ends, the entry goes. The name of the entry does not change: it is judged by the session key of
// the session that put it.
//
// Like a lock delay, the lease of the move has no time here. It lasts for so long that the attempt whose
// entry it is cannot hold by it any more: it was told, or it has waited for its lock delay and was told
// then. Sessions whose leases were revoked before the notice know of that.
//
// Nothing bounds how long an attempt takes whose entry is the first: a reply may be late or never come, it may not be
// able to read that the entry ahead is gone, and a set may wait in another queue. So each read of the own entries
// takes one that an administrator has written into for gone, until the attempt holds. And it does not hold by a look
// that is old by its clock: it looks again.

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
	first := m.nearest(s, e.version(), s.now).created == 0 || m.broken == waiterIsMoved
	switch {
	case e.noticed == unnoticed && s.removals < m.removals && first:
		t := m.step(s, "has its entry noticed by an administrator", e.name.attempt)
		t.removals++
		t.entries[k].noticed, t.entries[k].until = asked, s.untold()
		switch m.broken {
		case removalDeletes:
			t.deleteEntry(e.version())
		case moveIsTheNotice:
			t.entries[k].noticed = takenAway
		}
	case e.noticed == asked:
		m.step(s, "has its entry moved to another lease by an administrator", e.name.attempt).entries[k].noticed = takenAway
	case e.noticed == takenAway && (e.soonGone || m.moveMayEnd(s, e)):
		m.step(s, "has its entry go with the lease it was moved to", e.name.attempt).deleteEntry(e.version())
	}
	if e.noticed != unnoticed && !e.soonGone && m.mayTakeLong(s, e) && e.until == 0 {
		what := "takes so long that the lease that its entry was moved to, or will be, is about to end"
		t := m.step(s, what, e.name.attempt)
		t.entries[k].soonGone = true
		t.attempts[e.name.attempt].looksAgain = true
	}
	if a := &s.attempts[e.name.attempt]; e.noticed != unnoticed && a.stage == holding &&
		s.own(e.name.attempt, e.name.member) == e.version() {
		m.step(s, "finds the notice in its entry", e.name.attempt).attempts[e.name.attempt].quit()
	}
}

// mayTakeLong reports whether nothing bounds the time until the attempt holds whose entry it is. A set may have the
// first entry of one queue while it waits in another.
func (m *model) mayTakeLong(s *state, e *entry) bool {
	i := e.name.attempt
	a := &s.attempts[i]
	switch {
	case a.try != e.name.try:
		return false
	case a.stage == waiting:
		return s.own(i, e.name.member) == e.version()
	}
	return a.stage == enqueuing
}

// replyIsUnread reports whether an attempt may still read that etcd has carried out its enqueue.
func (m *model) replyIsUnread(s *state, i int8) bool {
	for _, c := range s.copies[:s.copyCount] {
		if c.attempt == i && c.awaited && c.accepted {
			return true
		}
	}
	return false
}

// moveMayEnd reports whether the lease that an entry was moved to may have ended.
func (m *model) moveMayEnd(s *state, e *entry) bool {
	if m.broken == moveIsTheNotice {
		return true // it was granted before, and carried out late
	}
	a := &s.attempts[e.name.attempt]
	if a.try != e.name.try || a.stage == idle || a.stage == done {
		return e.until == 0
	}
	if m.broken == moveWithoutDelay && a.stage == waiting {
		return true
	}
	mayHold := a.stage == holding || a.stage == enqueuing || a.stage == waiting && a.waitsIn() < 0
	return e.until == 0 && !mayHold
}
