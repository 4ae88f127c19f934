package queuemodel

// stand reports whether all entries of an attempt stand as its session has written them.
//
//go:norace
func (m *model) stand(s *state, i int8) bool {
	for _, k := range m.own(s, i) {
		q := &s.keys[k]
		if q.e != s.attempts[i].r || q.written && !m.rules.holdIgnoresMod {
			return false
		}
	}
	return true
}

// look is one linearizable read, or the reads in the Txn of a put: what stands ahead of the attempt now.
//
//go:norace
func (m *model) look(s *state, i int8) {
	a := &s.attempts[i]
	a.watch, a.watched, a.dead, a.waited = 0, 0, claims{}, false
	if !m.rules.holdIgnoresOwn && !m.stand(s, i) {
		a.stage = leaving
		return
	}
	dead := false
	for _, k := range m.own(s, i) {
		for _, q := range m.rivals[k] {
			o := &s.keys[q]
			if o.e != 0 && o.e < a.r && o.e > a.watched && !(m.rules.holdIgnoresE && o.c != o.e) {
				a.watch, a.watched = q, o.e
			}
			if o.c != 0 && o.c < a.r && o.c != o.e && !m.rules.holdIgnoresC && !m.attempts[i].foreign {
				m.see(s, m.attempts[i].session, q)
				a.dead[q], dead = o.c, true
			}
		}
	}
	switch {
	case a.watched != 0:
		a.stage, a.dead = waiting, claims{}
	case !dead:
		a.stage = ready
	case m.attempts[i].try && m.rules.tryIgnoresC:
		a.stage, a.dead = ready, claims{}
	default:
		a.stage, a.delayed = delayed, true
	}
}

// see records what a look of a session shows of a dead claim.
//
//	revision 5: A puts, revision 8: B puts, revision 9: B's lease is revoked; C looks
//
// A's key was older than B's when B put, and it still stands: so B never held, and its claim costs no delay.
//
//go:norace
func (m *model) see(s *state, session, k int8) {
	seen := &s.seen[session][k]
	if seen.c != s.keys[k].c && !(m.rules.sightByKey && seen.c != 0) {
		*seen = sight{c: s.keys[k].c}
	}
	seen.without = seen.without || !s.leases[m.leaseOf(k)].s
	for q := range 2 * m.n {
		x := s.keys[q].e
		if x == 0 {
			x = s.keys[q].c
		}
		older := x < seen.c || m.rules.acquitsEqual && x == seen.c || m.rules.acquitsBehind
		if x != 0 && q != k && older && (m.rules.acquitsAny || has(m.rivals[k], q)) {
			seen.acquitted = true
		}
	}
}

// over reports whether the delay of attempt i for the dead claim k may be over. LockDelay is over when the session of a
// lease that is gone has been told, or has put S again and has polled. ToldWithin is over when the attempt itself has
// been told.
//
//go:norace
func (m *model) over(s *state, i, k int8) bool {
	p := &m.attempts[i]
	seen, l := &s.seen[p.session][k], &s.leases[m.leaseOf(k)]
	told := l.told || l.l1 && l.s
	switch {
	case m.alone, m.rules.noDelay, p.hasty && m.rules.ownDelayOnly, seen.acquitted:
		return true
	case seen.c != s.keys[k].c: // the memory of an earlier claim at the key; with sightByKey only
		return seen.c != 0
	case m.rules.delayFromDead && !seen.without && !l.s, m.rules.shortDelay && !seen.without, seen.without && told:
		return true
	}
	return !m.believes(s, k, seen.c)
}

// believes reports whether the attempt that has put claim k at revision c believes that it holds, or is about to, by a
// look that is not too old.
//
//go:norace
func (m *model) believes(s *state, k int8, c revision) bool {
	by := s.keys[k].by
	a := &s.attempts[by]
	return (a.stage == holding || a.stage == ready && !m.rules.oldLook) && a.r == c && has(m.own(s, by), k)
}

// allOver reports whether all delays of an attempt may be over.
//
//go:norace
func (m *model) allOver(s *state, i int8) bool {
	for k, c := range s.attempts[i].dead {
		if c != 0 && c == s.keys[k].c && !m.over(s, i, int8(k)) {
			return false
		}
	}
	return true
}
