package leasemodel

// What etcd does.

func (m *model) etcdSteps(s *state) {
	leads := s.term
	if s.term < m.terms {
		m.electionSteps(s)
	}
	switch expiry := s.expiry[leads]; {
	case s.gone:
	case expiry == 0:
		t := m.step(s, "the leader of term %d finds that it leads", leads)
		t.expiry[leads] = s.now + m.ttl
		switch m.broken {
		case shortPromotion:
			t.expiry[leads]--
		case noPromotion:
			t.expiry[leads] = max(1, s.expiry[leads-1])
		}
	case s.now >= expiry && !s.proposed:
		m.step(s, "the leader of term %d proposes to revoke the lease", leads).proposed = true
	}
	if s.proposed && !s.gone && !s.put.inLog {
		m.step(s, "the lease is revoked").gone = true
	}
	if m.put {
		m.logSteps(s)
	}
}

// electionSteps finds the leaders that may be elected. Each has what is committed, and of the other entries in the log
// of the leader that leads as many as it may have got, the earlier ones first: the put before the revocation.
func (m *model) electionSteps(s *state) {
	next := s.term + 1
	m.step(s, "a leader of term %d is elected", next).term++
	if s.proposed && !s.gone {
		t := m.step(s, "a leader of term %d is elected, without the revocation in its log", next)
		t.proposed = false
		t.term++
	}
	if s.put.stage != logged {
		return
	}
	t := m.step(s, "a leader of term %d is elected, without the put in its log", next)
	t.proposed = s.proposed && !s.put.inLog
	t.put.inLog = false
	t.term++
	if !s.put.inLog && !s.gone {
		// It was a deposed leader that got the put, and none of the entries of its successor.
		t := m.step(s, "a leader of term %d is elected, with the put in its log", next)
		t.put.inLog, t.proposed = true, false
		t.term++
	}
}

// logSteps finds what becomes of the put: a leader, also one that was deposed and does not know, gets it into its log;
// it is committed there, and carried out. What follows a revocation in the log is refused.
func (m *model) logSteps(s *state) {
	switch r := s.put; r.stage {
	case sent:
		for term := int8(1); term <= s.term; term++ {
			leads := term == s.term
			if leads && (s.proposed || s.gone) && m.broken != putNeedsNoLease {
				continue
			}
			t := m.step(s, "the leader of term %d has the put sent at %d in its log", term, r.sent)
			t.put.stage, t.put.term, t.put.inLog = logged, term, leads
		}
	case logged:
		if r.inLog {
			t := m.step(s, "the put sent at %d is carried out", r.sent)
			t.put.stage, t.put.inLog = done, false
		}
	}
}

// renews reports whether the leader of a term acknowledges a renewal. One that was deposed and does not know goes by
// its memory, and so does not know of a revocation either.
func (m *model) renews(s *state, term int8) bool {
	expiry := s.expiry[term]
	switch {
	case expiry == 0 || term == s.term && s.gone:
		return false
	case m.broken == expiredIsRenewed:
		return true
	default:
		return s.now < expiry
	}
}

// renew carries out a renewal.
func (m *model) renew(s *state, r *request, term int8) {
	s.expiry[term] = s.now + m.ttl
	r.stage, r.term = done, term
}

// ackTerms returns the lowest and the highest term that the header of an acknowledgement may have.
func (m *model) ackTerms(s *state, r request) (lowest, highest int8) {
	if m.broken == ackHeaderIsLater {
		return 1, s.term
	}
	return 1, r.term
}

// readers returns the lowest and the highest term of the leaders that may confirm a read; none if the lease is gone,
// because the session would find that.
func (m *model) readers(s *state) (lowest, highest int8) {
	switch {
	case m.broken == serializableRead || m.broken == readWithoutQuorum:
		return 1, s.term // one that was deposed may not know that the lease is gone
	case s.gone:
		return 1, 0
	default:
		return s.term, s.term
	}
}

// proofTerms returns the lowest and the highest term that the header of a read may have.
func (m *model) proofTerms(s *state, r request) (lowest, highest int8) {
	switch m.broken {
	case proofHeaderIsOlder:
		return 1, s.term
	case readWithoutQuorum:
		return r.term, r.term
	default:
		return r.term, s.term
	}
}
