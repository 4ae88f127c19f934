package semmodel

// What must hold.

func (s *state) created(at revision) *entry {
	for i := range s.entryCount {
		if e := &s.entries[i]; e.created == at && at != 0 {
			return e
		}
	}
	return nil
}

// held returns the weight of the permits that are held by etcd's record.
func (m *model) held(s *state) (sum int8) {
	for i := range s.attempts {
		if a := &s.attempts[i]; a.stage == holding && s.standing(a.created) != nil {
			sum += m.attempts[i].weight
		}
	}
	return sum
}

// hold makes an attempt hold.
func (a *attempt) hold() {
	*a = attempt{
		stage: holding, try: a.try, created: a.created, base: a.base, heard: a.heard,
		queued: a.queued, waited: a.waited, newcomerTo: a.newcomerTo,
	}
}

func (m *model) checkAdmission(s *state, i int8) {
	weight := m.attempts[i].weight
	if m.look(s, s.attempts[i].created, s.now, maxEntries).sum+weight <= s.limit {
		return
	}
	if held := m.held(s); held+weight > s.limit {
		m.violated("limit: attempt %d is admitted, and %d of %d permits are held then", i, held+weight, s.limit)
	}
	m.violated("order: attempt %d is admitted, and one that waits ahead of it is passed", i)
}

// check looks for violations in one state.
func (m *model) check(s *state) string {
	var newcomerTo, waited leaseSet
	for i := range s.attempts {
		if a := &s.attempts[i]; a.stage == holding {
			newcomerTo |= a.newcomerTo
			if a.waited {
				waited |= a.newcomerTo
			}
		}
	}
	sum, believers := int8(0), false
	for i := range m.attempts {
		a := &s.attempts[i]
		if a.stage != holding {
			continue
		}
		if s.standing(a.created) == nil {
			if l := leaseOf(int8(i), a.try); newcomerTo.has(l) {
				if waited.has(l) {
					m.late++
				}
				continue
			}
			believers = true
		}
		sum += m.attempts[i].weight
	}
	if sum > s.most && believers {
		return "early: with those whose lease was revoked, and who do not know it, too many hold"
	}
	if sum > s.most {
		return "limit: more are held than ever were allowed"
	}
	return ""
}

// quiet looks for an attempt that could hold, and that nothing tells.
func (m *model) quiet(s *state) string {
	for i := range m.attempts {
		a := &s.attempts[i]
		if a.stage != far && a.stage != first || s.standing(a.created) == nil {
			continue
		}
		switch sum := m.look(s, a.created, s.now, maxEntries).sum; {
		case sum+m.attempts[i].weight <= s.limit:
			return "missed: an attempt could hold, and nothing tells it"
		case a.stage == first && m.attempts[i].weight > s.limit:
			return "missed: an attempt can never hold, and nothing tells it"
		}
	}
	return ""
}

// finished reports whether each attempt has ended and no entry exists.
func finished(s *state) bool {
	for i := range s.attempts {
		if s.attempts[i].stage != done {
			return false
		}
	}
	for i := range s.entryCount {
		if s.entries[i].deleted == 0 {
			return false
		}
	}
	return true
}
