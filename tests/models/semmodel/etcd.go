package semmodel

// carryOut does what a Txn says. It returns false if etcd refuses it.
func (m *model) carryOut(s *state, x txn) bool {
	return [...]func(*model, *state, txn) bool{
		put: (*model).put, convert: (*model).convert, clear: (*model).clear, admit: (*model).admit,
		release: (*model).release,
	}[x.kind](m, s, x)
}

// put is the Txn of a newcomer:
//
//	If   mod(S) = gate; E, T and both claims = 0
//	Then If no turn is unmarked: put E, its claim; else put T, its claim
//
// TryAcquire has no Else. A session that knows that others wait puts T at once.
func (m *model) put(s *state, x txn) bool {
	plan, l := m.attempts[x.by], m.pairOf(s, x.by, x.pair)
	p := &s.places[m.placeOf(x.by, x.pair)]
	gate := l.key || m.broken == noGate
	if !l.l1 || !l.l2 || !gate || p.permit != 0 || p.turn != 0 ||
		p.claim != 0 && m.broken != "a put does not compare the claim" {
		return false
	}
	now := s.now()
	asPermit := len(m.turns(s)) == 0 && !plan.queues || m.broken == "a put does not compare that no turn is unmarked"
	if !asPermit && plan.tries {
		return false
	}
	if p.by = x.by; p.claim == 0 && m.broken != "a permit has no claim" {
		p.claim, p.counts = now, asPermit
	}
	if p.turn = now; asPermit {
		p.permit, p.turn = now, 0
	}
	return true
}

// convert replaces a permit that does not fit by a turn, and its claim by another one:
//
//	If   create(E) = r; T and its claim = 0
//	Then delete E, its claim; put T, its claim
func (m *model) convert(s *state, x txn) bool {
	l, p := m.pairOf(s, x.by, x.pair), &s.places[m.placeOf(x.by, x.pair)]
	if !l.l1 || !l.l2 || p.permit != x.created || p.turn != 0 {
		return false
	}
	now := s.now()
	*p = place{turn: now, claim: now, by: x.by}
	if m.broken == "a conversion brings no claim" {
		p.claim = 0
	}
	return true
}

// clear deletes dead claims whose delays are over:
//
//	If   E or T as put; create(C) = r of each
//	Then delete each C
func (m *model) clear(s *state, x txn) bool {
	if own := &s.places[m.placeOf(x.by, x.pair)]; x.created != 0 && (own.permit != x.created && own.turn != x.created ||
		own.moved || own.marked) {
		return false
	}
	for k, r := range x.batch {
		if p := &s.places[k]; r != 0 && p.claim != -r && m.broken != "a claim is cleared by name" {
			return false
		}
	}
	for k, r := range x.batch {
		if r != 0 {
			s.places[k].claim, s.places[k].counts = 0, false
		}
	}
	return true
}

// admit marks turns, and their claims:
//
//	If   mod(limit) as read
//	Then for each turn of the batch: If mod(T) = r: put T; If create(C) = r: put C
func (m *model) admit(s *state, x txn) bool {
	if s.limitAt != x.limitAt && m.broken != "an admission does not compare the limit" {
		return false
	}
	marks, passed := false, false
	for _, k := range m.turns(s) {
		p := &s.places[k]
		if x.batch[k] != p.turn && !(x.batch[k] > 0 && m.broken == "an admission marks turns by name") {
			passed = true
			continue
		}
		if passed {
			m.violated("order: a turn is marked before an older one")
		}
		marks, p.marked, p.counts = true, true, p.claim == p.turn && m.broken != "the claim is not marked with its turn"
	}
	if marks {
		m.checkAdmission(s)
	}
	return true
}

// release deletes a permit or a turn, marked or not:
//
//	If   create(E or T) = r
//	Then delete it and its claim
//	Else If create(C) = r: delete C
func (m *model) release(s *state, x txn) bool {
	p := &s.places[m.placeOf(x.by, x.pair)]
	stands := x.created != 0 && (p.permit == x.created || p.turn == x.created)
	switch {
	case m.broken == "a release deletes by name":
		*p = place{}
	case stands && m.broken == "who gives up does not give back a mark" && p.marked:
	case stands && m.broken == "a release leaves the claim":
		*p = place{claim: p.claim, by: p.by, counts: p.counts}
	case stands, x.created != 0 && p.claim == x.created && p.isDead() && m.broken != claimStays:
		*p = place{}
	}
	return true
}

// moveGate puts the session key again: no copy of an earlier put does anything from now on.
func (m *model) moveGate(s *state, l int8) {
	s.pairs[l].key = true
	for i := range s.late {
		if x := &s.late[i]; x.kind == put && 2*m.attempts[x.by].session+x.pair == l && m.broken != noGate {
			*x = txn{}
		}
	}
}

// end ends L1, and what stands on it.
func (m *model) end(s *state, l int8) {
	s.pairs[l].l1, s.pairs[l].key = false, false
	for k := range m.places {
		if p := &s.places[k]; m.pairAt[k] == l && !p.moved {
			p.permit, p.turn = 0, 0
		}
	}
}

// endClaims ends L2, and what stands on it.
func (m *model) endClaims(s *state, l int8) {
	s.pairs[l].l2 = false
	for k := range m.places {
		if m.pairAt[k] == l {
			s.places[k].claim = 0
		}
	}
}
