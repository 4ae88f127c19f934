package leasemodel

// What etcd does.

func (m *model) etcdSteps(s *state) {
	leads := s.term
	if s.term < m.terms {
		m.step(s, "a leader of term %d is elected", leads+1).term++
		if s.proposed && !s.gone {
			t := m.step(s, "a leader of term %d is elected, without the revocation in its log", leads+1)
			t.proposed = false
			t.term++
		}
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
	if s.proposed && !s.gone {
		m.step(s, "the lease is revoked").gone = true
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
