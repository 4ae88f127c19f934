package queuemodel

import "fmt"

// check returns what is wrong with a state, "" if nothing is.
func (m *model) check(s *state) string {
	for i := range m.attempts {
		for k := range m.members[i] {
			if !s.attempts[i].holds(int8(k)) {
				continue
			}
			if wrong := m.checkHold(s, int8(i), int8(k)); wrong != "" {
				return wrong
			}
		}
	}
	if s.freedEarly {
		return "kept: a session deleted an entry before MinHold had passed"
	}
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.deleted != 0 || e.kept != notKept || e.noticed == takenAway || s.leases[e.lease].told ||
			s.sessions[e.lease/2].closing {
			continue
		}
		a := &s.attempts[e.name.attempt]
		lives := a.stage != done && a.stage != idle && (a.try == e.name.try || a.replaces == e.created)
		if !lives && !m.isLeaving(s, e) && a.suspects[e.name.try][e.name.member].doubt == none {
			return fmt.Sprintf("orphan: an entry of attempt %d stands, unknown to it and to the sweeper", e.name.attempt)
		}
	}
	return ""
}

// checkHold is check for attempt i, which holds member k of its set.
func (m *model) checkHold(s *state, i, k int8) string {
	a, own := &s.attempts[i], s.own(i, k)
	if s.standing(own) == nil {
		return "" // etcd revoked its lease; the other attempt is checked against it
	}
	for n := range s.entryCount {
		if e := &s.entries[n]; e.deleted == 0 && e.created < own.created && m.exclude(own.name, e.name) {
			return fmt.Sprintf("order: attempt %d holds, and an entry created before its own stands", i)
		}
	}
	for n := range m.attempts {
		b := &s.attempts[n]
		for l := range int8(len(m.members[n])) {
			other := s.own(int8(n), l)
			switch {
			case int8(n) == i || !b.holds(l) || !m.exclude(own.name, other.name):
			case s.standing(other) != nil:
				return fmt.Sprintf("exclusion: attempts %d and %d both hold by etcd's record", i, n)
			case a.newcomerTo.has(b.lease):
				if m.overlaps++; a.behind.has(b.lease) {
					m.late++
				}
			default:
				return fmt.Sprintf("early: attempt %d holds while %d, which has lost its entry, believes that it holds", i, n)
			}
		}
	}
	return ""
}

// finished reports whether each attempt has ended, no copy is in flight, no entry exists, and each
// sweeper is idle.
func (m *model) finished(s *state) bool {
	for i := range m.attempts {
		if a := &s.attempts[i]; a.stage != done || a.suspects != [maxTries][maxMembers]suspect{} {
			return false
		}
	}
	for i := range s.entryCount {
		if s.entries[i].deleted == 0 {
			return false
		}
	}
	return s.copyCount == 0
}
