package leasemodel

// What a session does.

func (m *model) renewalSteps(s *state, i int) {
	switch r := s.renewals[i]; r.stage {
	case unsent:
		m.step(s, "a renewal is sent").renewals[i] = request{stage: sent, sent: s.now}
	case sent:
		if m.anyEtcd {
			m.acknowledge(s, i, 1, m.terms)
			return
		}
		for term := int8(1); term <= s.term; term++ {
			if m.renews(s, term) {
				t := m.step(s, "the leader of term %d acknowledges the renewal sent at %d", term, r.sent)
				m.renew(t, &t.renewals[i], term)
			}
		}
		m.step(s, "a renewal is lost").renewals[i] = request{}
	case done:
		lowest, highest := m.ackTerms(s, r)
		m.acknowledge(s, i, lowest, highest)
		m.step(s, "an acknowledgement is lost").renewals[i] = request{}
	}
}

// acknowledge finds the steps in which the acknowledgement of a renewal arrives.
func (m *model) acknowledge(s *state, i int, lowest, highest int8) {
	r := s.renewals[i]
	for term := lowest; term <= highest; term++ {
		t := m.step(s, "the acknowledgement of the renewal sent at %d arrives, term %d", r.sent, term)
		t.renewals[i] = request{}
		m.keep(t, &t.ack, m.received(s, s.renewals, r, term))
	}
}

func (m *model) readSteps(s *state, i int) {
	switch r := s.reads[i]; r.stage {
	case unsent:
		m.step(s, "a read is sent").reads[i] = request{stage: sent, sent: s.now}
	case sent:
		if m.anyEtcd {
			m.prove(s, i, 1, m.terms)
			return
		}
		lowest, highest := m.readers(s)
		for term := lowest; term <= highest; term++ {
			t := m.step(s, "the read sent at %d is carried out in term %d", r.sent, term)
			t.reads[i].stage, t.reads[i].term = done, term
		}
		m.step(s, "a read is lost").reads[i] = request{}
	case done:
		lowest, highest := m.proofTerms(s, r)
		m.prove(s, i, lowest, highest)
		m.step(s, "the reply to a read is lost").reads[i] = request{}
	}
}

// prove finds the steps in which the reply to a read arrives.
func (m *model) prove(s *state, i int, lowest, highest int8) {
	r := s.reads[i]
	for term := lowest; term <= highest; term++ {
		t := m.step(s, "the reply to the read sent at %d arrives, term %d", r.sent, term)
		t.reads[i] = request{}
		m.keep(t, &t.proof, m.received(s, s.reads, r, term))
	}
}

// keep has the session keep a reply, unless it is of no use any more, or a later request was answered before. It
// mirrors Lease.heardReply.
func (m *model) keep(s *state, kept *reply, r reply) {
	if r.sent+m.trust > s.trusted && r.sent >= kept.sent {
		*kept = r
	}
}

// received returns what the session hears of a reply.
func (m *model) received(s *state, all [maxCopies]request, r request, term int8) reply {
	from := r.sent
	switch m.broken {
	case countsFromLatestCopy:
		for _, other := range all {
			from = max(from, other.sent)
		}
	case ackCountsFromItsReply:
		from = s.now
	}
	return reply{held: true, sent: from, term: term}
}

// judge has the session look at its replies, when it comes to that. It mirrors Lease.judgeLocked.
func (m *model) judge(s *state) {
	a, p := s.ack, s.proof
	switch {
	case a.held && m.broken == ackIsEnough:
		p = a
	case !a.held || !p.held:
		return
	case a.term < p.term && m.broken != termsAreNotCompared && m.broken != olderAckCounts:
		m.step(s, "drops the acknowledgement, of an earlier term").ack = reply{}
		return
	case a.term > p.term && m.broken != termsAreNotCompared && m.broken != olderProofCounts &&
		m.broken != countsFromOldProof:
		m.step(s, "drops the proof, of an earlier term").proof = reply{}
		return
	}
	from := min(a.sent, p.sent)
	switch m.broken {
	case countsFromLaterSend:
		from = max(a.sent, p.sent)
	case countsFromAck, countsFromOldProof:
		from = a.sent
	case countsFromProof:
		from = p.sent
	}
	t := m.step(s, confirms)
	t.trusted, t.ack, t.proof = from+m.trust, reply{}, reply{}
}

// putSteps: the put of the session key is in the place of the read. It is sent once.
func (m *model) putSteps(s *state) {
	switch r := s.put; r.stage {
	case unsent:
		m.step(s, "the put is sent").put = put{request: request{stage: sent, sent: s.now}}
	case done:
		lowest, highest := r.term, s.term
		if m.broken == putHeaderIsOlder {
			lowest = 1
		}
		for term := lowest; term <= highest; term++ {
			t := m.step(s, "the reply to the put sent at %d arrives, term %d", r.sent, term)
			t.put.stage = heard
			m.keep(t, &t.proof, reply{held: true, sent: r.sent, term: term})
		}
	}
}
