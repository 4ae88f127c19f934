package queuemodel

import "fmt"

// check looks for violations in one state.
func (m *model) check(s *state) {
	for i := range m.attempts {
		a := &s.attempts[i]
		if a.stage != holding {
			continue
		}
		own := s.standing(a.place.created)
		if own == nil {
			continue // etcd revoked its lease; the other attempt is checked against it
		}
		if ahead := m.nearest(s, own, s.now); ahead != 0 {
			m.violated(fmt.Sprintf("order: attempt %d holds, and an entry created before its own stands", i))
		}
		for k := range m.attempts {
			b := &s.attempts[k]
			switch {
			case k == i || b.stage != holding || !m.exclude(int8(i), int8(k)):
			case s.standing(b.place.created) != nil:
				m.violated(fmt.Sprintf("exclusion: attempts %d and %d both hold by etcd's record", i, k))
			case a.newcomerTo.has(b.lease):
				m.overlaps++
			default:
				m.violated(fmt.Sprintf("early: attempt %d holds while %d, whose lease was revoked, believes that it holds", i, k))
			}
		}
	}
	if s.freedEarly {
		m.violated("kept: a session deleted an entry before MinHold had passed")
	}
	for i := range s.entryCount {
		e := &s.entries[i]
		if e.deleted != 0 || e.kept != notKept || e.noticed == takenAway || s.leases[e.lease].told ||
			s.sessions[e.lease/2].closing {
			continue
		}
		a := &s.attempts[e.attempt]
		lives := a.stage != done && a.stage != idle && (a.try == e.try || a.replaces == e.created)
		if !lives && a.suspects[e.try].doubt == none {
			m.violated(fmt.Sprintf("orphan: an entry of attempt %d stands, unknown to it and to the sweeper", e.attempt))
		}
	}
}

// finished reports whether each attempt has ended, no copy is in flight, no entry exists, and each
// sweeper is idle.
func (m *model) finished(s *state) bool {
	for i := range m.attempts {
		if a := &s.attempts[i]; a.stage != done || a.suspects != [maxTries]suspect{} {
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
