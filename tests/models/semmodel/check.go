package semmodel

import "slices"

// checkAdmission checks the limit: see doc.go.
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

func (m *model) check(s *state) string {
	held := int8(0)
	for i := range m.attempts {
		a := &s.attempts[i]
		if a.stage == holds {
			held += m.attempts[i].weight
		}
		if a.waited && slices.Equal(s.left[:remove], m.faults[:remove]) { // none of the faults that may cause a delay
			return "needless: an attempt delays although nothing has gone wrong"
		}
		if m.missed(s, int8(i)) {
			return "missed: nothing tells an attempt that it could hold, never can, or is admitted"
		}
	}
	if held > s.most {
		return "limit: more are held than ever were allowed"
	}
	return ""
}

func (m *model) missed(s *state, i int8) bool {
	a, own, weight := &s.attempts[i], m.own(s, i), m.attempts[i].weight
	switch ahead := s.places[a.behind]; {
	case own.turn != a.created || own.moved || a.created == 0:
		return false
	case a.stage == front && !a.news && !own.marked:
		_, live := m.weights(s, own.turn)
		return live+weight <= s.limit || weight > s.limit
	default:
		return a.stage == waits && own.marked && ahead.turn == a.ahead &&
			(!ahead.marked || m.broken == markIsNotWatched)
	}
}

func (m *model) finished(s *state) bool {
	return s.places == [maxPlaces]place{} &&
		!slices.ContainsFunc(s.attempts[:], func(a attempt) bool { return a.stage != done })
}
