package semmodel

// What must hold.

// checkAdmission: at each admission, what is held by etcd's record, and by those who do not know yet that their key is
// gone, fits into the limit of that revision.
func (m *model) checkAdmission(s *state) {
	sum := int8(0)
	for k := range m.places {
		// A permit E without a holder may not fit.
		if p := &s.places[k]; p.turn != 0 && p.marked || p.permit != 0 && m.believes(s, k) {
			sum += m.weight[k]
		}
	}
	for i := range m.attempts {
		a, own := &s.attempts[i], m.own(s, int8(i))
		stands := own.by == int8(i) && (own.permit == a.created || own.turn == a.created && own.marked)
		if (a.stage == holds || a.stage == ready) && !stands {
			sum += m.attempts[i].weight
		}
	}
	if sum > s.limit {
		m.violated("limit: %d of %d permits are held with an admission", sum, s.limit)
	}
}

// check looks for violations in one state.
func (m *model) check(s *state) string {
	held := int8(0)
	for i := range m.attempts {
		a := &s.attempts[i]
		if a.stage == holds {
			held += m.attempts[i].weight
		}
		if a.waited && !m.somethingHappened(s) {
			return "needless: an attempt delays although nothing has gone wrong"
		}
		if wrong := m.missed(s, int8(i)); wrong != "" {
			return wrong
		}
	}
	if held > s.most {
		return "limit: more are held than ever were allowed"
	}
	return ""
}

// somethingHappened reports whether a fault has happened that may cause a delay.
func (m *model) somethingHappened(s *state) bool {
	for f := range remove {
		if s.left[f] != m.faults[f] {
			return true
		}
	}
	return false
}

// missed looks for an attempt that could hold, or never can, while nothing tells it.
func (m *model) missed(s *state, i int8) string {
	a, own := &s.attempts[i], m.own(s, i)
	if own.turn != a.created || own.moved || a.created == 0 {
		return ""
	}
	switch weight := m.attempts[i].weight; {
	case a.stage == front && !a.news && !own.marked:
		if _, live := m.weights(s, own.turn); live+weight <= s.limit || weight > s.limit {
			return "missed: an attempt could hold, or never can, and nothing tells it"
		}
	case a.stage == waits && own.marked:
		ahead := &s.places[a.behind]
		if ahead.turn == a.ahead && (!ahead.marked || m.broken == markIsNotWatched) {
			return "missed: an attempt is admitted, and nothing tells it"
		}
	}
	return ""
}

// finished reports whether each attempt has ended and no key exists.
func (m *model) finished(s *state) bool {
	for i := range s.attempts {
		if s.attempts[i].stage != done {
			return false
		}
	}
	for k := range s.places {
		if p := &s.places[k]; p.permit != 0 || p.turn != 0 || p.claim != 0 {
			return false
		}
	}
	return true
}
