package queuemodel

// The network. Copies of an enqueue are carried out and answered at any time, or lost.

func (m *model) copySteps(s *state, k int8) {
	c := s.copies[k]
	switch {
	case !s.leases[c.lease].alive && !c.answered:
		m.step(s, "has a copy refused: its lease is gone", c.attempt).dropCopy(k)
		return
	case !c.answered:
		t := m.step(s, "has a copy reach etcd", c.attempt)
		m.apply(t, &t.copies[k])
		if !c.awaited && t.copies[k].answered {
			t.dropCopy(k)
		}
		if m.broken == twoOfAQueueInABatch {
			m.batchSteps(s, k)
		}
	default:
		t := m.step(s, "reads the reply to its enqueue", c.attempt)
		refused := !c.accepted && s.leases[c.lease].key != c.gate
		t.dropCopy(k)
		if t.attempts[c.attempt].stage == enqueuing {
			m.answer(t, c)
			m.last().Again = refused && m.last().State.attempts[c.attempt].stage == enqueuing
		}
	}
	if m.lossy {
		t := m.step(s, "has a copy or its reply lost", c.attempt)
		t.dropCopy(k)
	}
}

// batchSteps carry out a copy and another of the same session in one Txn. So their entries have one create
// revision, and a read that is bounded by it finds none of the other's ahead.
func (m *model) batchSteps(s *state, k int8) {
	for l := k + 1; l < s.copyCount; l++ {
		c, d := s.copies[k], s.copies[l]
		if d.answered || c.attempt == d.attempt || c.lease != d.lease {
			continue
		}
		t := m.step(s, "has a copy reach etcd in one batch with another", c.attempt)
		m.apply(t, &t.copies[k])
		t.now = s.now
		m.apply(t, &t.copies[l])
		t.now = s.now + 1
	}
}

func (s *state) dropCopy(k int8) {
	copy(s.copies[k:], s.copies[k+1:])
	s.copyCount--
	s.copies[s.copyCount] = enqueueCopy{}
}
