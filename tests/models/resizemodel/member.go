package resizemodel

// A unit is what one function has: shards that are locked by one Txn, and the tenants in them.
type unit struct{ shards, tenants []int8 }

// units returns what members hold in a phase.
func (m *model) units(p phase) (all []unit) {
	n := [...]int8{m.from, min(m.from, m.to), m.to}[p]
	if p == step && m.barrier {
		return nil
	}
	for i := range n {
		u := unit{shards: []int8{i}}
		if p == step && m.broken != halfTogether {
			u.shards = nil
			for k := i; k < maxShards; k += n { // of both numbers
				u.shards = append(u.shards, k)
			}
		}
		for t := i; t < maxShards; t += n {
			u.tenants = append(u.tenants, t)
		}
		all = append(all, u)
	}
	return all
}

func (m *model) memberSteps(s *state, i int8) {
	a := &s.members[i]
	busy := false
	for n, u := range m.units(a.knows.phase) {
		busy = busy || a.holds[n].stage != idle
		m.holdSteps(s, i, n, u)
	}
	if a.knows != s.number && !busy {
		m.step(s, i, "goes by what stands now", func(t *state) { t.members[i].knows = t.number })
	}
	if s.left.revokes > 0 && !a.lost {
		m.choice(s, i, "has its lease revoked", func(t *state) {
			t.left.revokes--
			t.members[i].lost = true
			for k := range t.keys[i] {
				t.keys[i][k].entry = 0
			}
		})
	}
	if a.lost {
		m.step(s, i, "is told of the loss", func(t *state) { t.members[i] = member{knows: a.knows} })
	}
	for k, q := range s.keys[i] {
		if q.entry == 0 && q.claim != 0 && !m.trusts(s, i, q.claim) {
			m.step(s, i, "has a claim deleted after the delay", func(t *state) { t.keys[i][k].claim = 0 })
		}
	}
}

// trusts reports whether a member holds, or is about to, by an entry of that revision.
func (m *model) trusts(s *state, i int8, r revision) bool {
	for _, h := range s.members[i].holds {
		if h.stage != idle && h.r == r {
			return true
		}
	}
	return false
}

func (m *model) holdSteps(s *state, i int8, n int, u unit) {
	a := &s.members[i]
	h := a.holds[n]
	if h.stage == idle {
		if !a.lost {
			m.put(s, i, n, u)
		}
		return
	}
	if a.knows != s.number {
		m.step(s, i, "hears that the number changes, and releases", func(t *state) { t.release(i, n, u) })
	}
	switch h.stage {
	case queued:
		if m.isFirst(s, i, h.r, u) {
			m.step(s, i, "finds itself first", func(t *state) { t.members[i].holds[n].stage = first })
		}
	case first:
		m.step(s, i, "reads the number", func(t *state) { m.confirm(t, i, n, u) })
	case holding:
		m.choice(s, i, "hands a shard over", func(t *state) { t.release(i, n, u) })
		for _, w := range m.writes(h.r, u) {
			if s.left.lates > 0 {
				m.choice(s, i, "writes, and that is late", func(t *state) {
					t.left.lates--
					t.late = w
				})
			}
		}
	case idle:
	}
}

// put queues by what the member knows, which may be old.
func (m *model) put(s *state, i int8, n int, u unit) {
	for _, k := range u.shards {
		if s.keys[i][k] != (key{}) { // a claim of its earlier lease
			return
		}
	}
	m.step(s, i, "queues", func(t *state) {
		r := t.next()
		t.members[i].holds[n] = hold{queued, r}
		for _, k := range u.shards {
			t.keys[i][k] = key{r, r}
		}
	})
}

// isFirst is a look: nothing of another member is ahead.
func (m *model) isFirst(s *state, i int8, r revision, u unit) bool {
	for _, k := range u.shards {
		if s.keys[i][k].entry != r {
			return false
		}
		for j := range s.keys {
			q := s.keys[j][k]
			if int8(j) != i && (q.entry != 0 && q.entry < r || q.claim != 0 && q.claim < r) {
				return false
			}
		}
	}
	return true
}

// confirm holds, and writes to each tenant, if the number and the step are still what the member goes by.
func (m *model) confirm(t *state, i int8, n int, u unit) {
	a := &t.members[i]
	same := a.knows == t.number || m.broken == notConfirmed || m.broken == confirmedOnce && a.confirmed
	if !same {
		t.release(i, n, u)
		return
	}
	a.confirmed = m.broken == confirmedOnce
	a.holds[n].stage = holding
	for _, w := range m.writes(a.holds[n].r, u) {
		if !t.write(w) && !a.lost {
			m.wrong = "refused: a member that holds cannot write"
		}
	}
}

func (s *state) release(i int8, n int, u unit) {
	r := s.members[i].holds[n].r
	s.members[i].holds[n] = hold{}
	for _, k := range u.shards {
		if q := &s.keys[i][k]; q.claim == r {
			*q = key{}
		}
	}
}

// writes are one to each tenant.
func (m *model) writes(token revision, u unit) (all []write) {
	for _, tenant := range u.tenants {
		w := write{token, tenant, tenant}
		if m.broken == marksByIndex {
			w.mark = u.shards[0]
		}
		all = append(all, w)
	}
	return all
}

// write reports whether a write lands: the mark refuses those with a smaller token.
func (s *state) write(w write) bool {
	if w.token < s.mark[w.mark] {
		return false
	}
	s.mark[w.mark] = w.token
	s.wrote[w.tenant] = max(s.wrote[w.tenant], w.token)
	return true
}
