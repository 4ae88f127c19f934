package semmodel

import "slices"

// turns returns the places of the turns that wait, the oldest first.
func (m *model) turns(s *state) []int8 {
	all := m.room[:0]
	for k := range m.places {
		if s.places[k].waits() {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b int8) int { return int(s.places[a].turn - s.places[b].turn) })
	return all
}

// weights returns the weights of the permits put before a revision: of all that count, and of those without the dead
// claims.
func (m *model) weights(s *state, before revision) (all, live int8) {
	for k := range m.places {
		switch p := &s.places[k]; {
		case p.permit != 0 && p.permit < before,
			p.turn != 0 && p.marked && p.turn < before && m.broken != "a marked turn does not count":
			all, live = all+m.weight[k], live+m.weight[k]
		case p.isDead() && p.counts && p.claim < before && m.broken != "a dead claim does not count":
			all += m.weight[k]
		}
	}
	return all, live
}

// A sight is what a look shows of the oldest turn that waits.
type sight struct {
	heavy bool                // its weight is above the limit
	room  bool                // it fits beside all that count
	delay bool                // it fits once the delays of dead claims are over
	batch [maxPlaces]revision // the turns that fit, from it on
	rest  [maxPlaces]revision // dead claims of turns that were never marked, with a minus: there is no delay for them
}

func (m *model) atFront(s *state) (v sight) {
	turns := m.turns(s)
	front := s.places[turns[0]].turn
	taken, live := m.weights(s, front)
	for k := range m.places {
		if p := &s.places[k]; p.isDead() && p.claim < front && !p.counts {
			v.rest[k] = -p.claim
		}
	}
	if m.broken == "the front does not count dead claims" {
		taken = live
	}
	own, full := m.weight[turns[0]], false
	v.heavy, v.room, v.delay = own > s.limit, taken+own <= s.limit, live+own <= s.limit
	for n, k := range turns {
		switch {
		case n >= int(m.most) && m.broken == "a front reads claims of turns that it does not read":
			v.rest[k] = -s.places[k].claim
		case n >= int(m.most) || full:
		case taken+m.weight[k] <= s.limit:
			v.batch[k], taken = s.places[k].turn, taken+m.weight[k]
		default:
			full = m.broken != "an admission passes one that does not fit"
		}
	}
	return v
}

// look is one linearizable read of an attempt that has a turn, or the reads in the Txn that puts it.
func (m *model) look(s *state, i int8) {
	a, own := &s.attempts[i], m.own(s, i)
	if a.news, a.batch, a.alive = false, [maxPlaces]revision{}, 0; own.by != i || own.turn == 0 || own.moved {
		m.found(s, i)
		return
	}
	if a.created = own.turn; own.marked {
		a.stage = ready
		return
	}
	turns := m.turns(s)
	if n := slices.Index(turns, m.placeOf(i, a.pair)); n > 0 {
		a.stage, a.behind, a.ahead = waits, turns[n-1], s.places[turns[n-1]].turn
		return
	}
	a.limitAt = s.limitAt
	switch v := m.atFront(s); {
	case v.heavy:
		a.stage, a.again = leaves, true // LimitError
	case v.rest != [maxPlaces]revision{}:
		a.stage, a.batch = clears, v.rest
	case v.room:
		a.stage, a.batch = admits, v.batch
	case v.delay:
		m.delayFor(s, a, own.turn)
	default:
		a.stage = front
	}
}

// found is what an attempt makes of it that its turn does not stand.
func (m *model) found(s *state, i int8) {
	a, own := &s.attempts[i], m.own(s, i)
	switch {
	case own.by == i && own.permit != 0 && (!own.moved || m.broken == movedHolds):
		a.stage, a.created = placed, own.permit // its put was carried out, and was not answered
		if m.broken == "a permit that is found holds" {
			a.stage = ready
		}
	case own.by == i && own.turn != 0 && own.marked && m.broken == movedHolds:
		a.stage = ready
	default:
		a.stage, a.unsure = leaves, true
	}
}

// delayFor begins the delays of all dead claims that were put before a revision.
func (m *model) delayFor(s *state, a *attempt, before revision) {
	a.stage, a.waited = delays, true
	for k := range m.places {
		if p := &s.places[k]; p.isDead() && p.counts && p.claim < before {
			if a.batch[k] = -p.claim; s.pairs[m.pairAt[k]].key {
				a.alive |= 1 << k
			}
		}
	}
}

// position judges a permit E by what stands ahead of it, and by the limit, if that was not changed since.
func (m *model) position(s *state, i int8) {
	a, own := &s.attempts[i], m.own(s, i)
	if own.by != i || own.permit == 0 || own.moved && m.broken != movedHolds {
		m.found(s, i)
		return
	}
	a.created = own.permit
	all, live := m.weights(s, own.permit)
	if m.broken == "by position: dead claims ahead do not count" {
		all = live
	}
	weight := m.attempts[i].weight
	unchanged := s.limitAt < own.permit || m.broken == "by position: a limit that was changed since"
	switch {
	case all+weight <= s.limit && unchanged:
		a.stage = ready
		m.checkAdmission(s)
	case live+weight <= s.limit && unchanged:
		m.delayFor(s, a, own.permit)
		a.limitAt = s.limitAt
	case m.attempts[i].tries:
		a.stage = leaves
	default:
		a.stage = converts
	}
}
