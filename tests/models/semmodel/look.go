package semmodel

// What an attempt reads of the permits ahead, and what it knows by that.

// A look is what a read of the entries ahead tells, as they stood at a revision.
type look struct {
	sum     int8   // of the weights of the oldest, so many as are read
	nearest *entry // the youngest; nil if there is none
}

func (m *model) look(s *state, created, at revision, most int8) (l look) {
	for k := range s.entryCount {
		e := &s.entries[k]
		if e.created >= created || !e.stoodAt(at) {
			continue
		}
		if most--; most >= 0 {
			l.sum += m.attempts[e.attempt].weight
		}
		l.nearest = e // they are in order
	}
	return l
}

// mayRead returns how many permits an attempt may take for the highest number that is held: it may have heard of the
// limit, and not of the highest one. So it reads fewer, and may become a first waiter where it could be far.
func mayRead(s *state) []int8 {
	if s.high == s.limit {
		return []int8{s.high}
	}
	return []int8{s.high, s.limit}
}

// mayHold reports whether the nearest entry may hold, or has held, without a mark: it was admitted when it was put.
// That is excluded if it did not fit into the limit then: the weights up to it exceed the limit, which has not changed
// since, or the highest at which one that stands was put.
func (m *model) mayHold(s *state, l look) bool {
	return l.nearest == nil || l.sum <= s.limit || l.sum <= s.high &&
		s.limitAt > l.nearest.created && m.broken != limitOfNowExcludes
}

func (m *model) fits(sum, weight, limit int8) bool {
	if m.broken == oneTooMany {
		limit++
	}
	return sum+weight <= limit
}
