package queuemodel

// The Txns of the protocol. Each is atomic; those that may be refused report whether they were carried out.

// put puts the entries and claims of an attempt, under a pair of leases. With after it deletes those of the attempt
// before it in its line, which were put at r.
func (m *model) put(s *state, i, pair, after int8, r revision) bool {
	p := &m.attempts[i]
	keys := m.keys[i][pair]
	l := &s.leases[2*p.session+pair]
	if !l.l1 || !l.l2 || !l.s && !m.rules.putIgnoresS {
		return false
	}
	for _, k := range keys {
		if s.keys[k].e != 0 || s.keys[k].c != 0 && !m.rules.putIgnoresC || p.try && m.entryStands(s, k) {
			return false
		}
	}
	if after != 0 && !m.replace(s, after-1, r) {
		return false
	}
	now := m.next(s)
	for _, k := range keys {
		q := key{e: now, c: s.keys[k].c, by: i} // a put keeps the create revision of a key that stands
		if q.c == 0 && !m.rules.noClaim && !p.foreign {
			q.c = now
		}
		s.keys[k] = q
	}
	return true
}

// replace deletes the entries and claims of attempt i for a hand-off.
func (m *model) replace(s *state, i int8, r revision) bool {
	for _, k := range m.own(s, i) {
		if s.keys[k].e != r && !m.rules.passUnchecked {
			return false
		}
	}
	for _, k := range m.own(s, i) {
		s.keys[k] = key{}
	}
	return true
}

// entryStands reports whether an entry stands that excludes the one of k.
func (m *model) entryStands(s *state, k int8) bool {
	for _, q := range m.rivals[k] {
		if s.keys[q].e != 0 {
			return true
		}
	}
	return false
}

// release deletes what stands of an attempt whose entries were put at r.
func (m *model) release(s *state, keys []int8, r revision) {
	for _, k := range keys {
		switch q := &s.keys[k]; {
		case r == 0:
		case m.rules.releaseByName:
			*q = key{}
		case q.e == r: // If create(E) = r
			c := q.c
			if *q = (key{by: q.by}); m.rules.releaseOnlyE {
				q.c = c
			}
		case q.c == r && !m.rules.claimStays: // refused, and then: If create(C) = r
			q.c = 0
		}
	}
}

// clear deletes dead claims for attempt i, if its entries stand as its session wrote them.
func (m *model) clear(s *state, i int8, pair int8, r revision, dead *claims) bool {
	for _, k := range m.keys[i][pair] {
		q := &s.keys[k]
		if !m.rules.clearIgnoresOwn && (q.e != r || q.written && !m.rules.clearIgnoresMod) {
			return false
		}
	}
	for k, c := range dead {
		if c != 0 && s.keys[k].c != c && (!m.rules.clearIgnoresRev || s.keys[k].c == 0) {
			return false
		}
	}
	for k, c := range dead {
		if c != 0 {
			s.keys[k].c = 0
		}
	}
	return true
}

// move puts the entries of a hold that was released on a lease of their own, and deletes their claims: MinHold.
func (m *model) move(s *state, keys []int8, r revision) {
	for _, k := range keys {
		q := &s.keys[k]
		if q.e != r || q.kept {
			continue
		}
		if q.kept, q.written = true, true; !m.rules.moveLeavesC {
			q.c = 0
		}
	}
}

// downgrade deletes the writer's entry and claim, if both entries stand.
func (m *model) downgrade(s *state, keys []int8, r revision) bool {
	if s.keys[keys[0]].e != r || s.keys[keys[1]].e != r {
		return false
	}
	c := s.keys[keys[0]].c
	if s.keys[keys[0]] = (key{by: s.keys[keys[0]].by}); m.rules.downgradeLeavesC {
		s.keys[keys[0]].c = c
	}
	return true
}
