package queuemodel

import "fmt"

// check returns what is wrong with a state, "" if nothing is.
//
//go:norace
func (m *model) check(s *state) string {
	for i := range m.attempts {
		if s.attempts[i].stage == holding {
			if wrong := m.checkHold(s, int8(i)); wrong != "" {
				return wrong
			}
		}
		if s.attempts[i].delayed && !s.faulty {
			return fmt.Sprintf("needless: attempt %d delays although nothing has gone wrong", i)
		}
	}
	return ""
}

// checkHold is check for attempt i, which holds. One that has no delay by its own choice may hold too early, but must
// not let others do so.
func (m *model) checkHold(s *state, i int8) string {
	a, mine := &s.attempts[i], m.ownEntries(s, i)
	for _, k := range m.own(s, i) {
		for _, q := range m.rivals[k] {
			o := &s.keys[q]
			if mine && o.e != 0 && o.e < a.r {
				return fmt.Sprintf("order: attempt %d holds before an entry of attempt %d", i, o.by)
			}
		}
	}
	if !mine && m.attempts[i].foreign {
		return ""
	}
	for n := range m.attempts {
		j := int8(n)
		b := &s.attempts[j]
		if j == i || b.stage != holding || m.attempts[j].foreign && !m.ownEntries(s, j) || !m.exclude(s, i, j) {
			continue
		}
		return fmt.Sprintf("exclusion: attempts %d and %d hold", i, j)
	}
	return ""
}

// ownEntries reports whether all entries of an attempt stand that it has put.
func (m *model) ownEntries(s *state, i int8) bool {
	for _, k := range m.own(s, i) {
		if s.keys[k].e != s.attempts[i].r {
			return false
		}
	}
	return true
}

// exclude reports whether two attempts must not hold at once.
func (m *model) exclude(s *state, i, j int8) bool {
	for _, k := range m.own(s, i) {
		for _, q := range m.own(s, j) {
			if q == k || has(m.rivals[k], q) {
				return true
			}
		}
	}
	return false
}

// finished reports whether all attempts have ended and no key is left.
//
//go:norace
func (m *model) finished(s *state) bool {
	for i := range s.attempts {
		if s.attempts[i].stage != done {
			return false
		}
	}
	for k := range s.keys {
		if s.keys[k].e != 0 || s.keys[k].c != 0 {
			return false
		}
	}
	return true
}
