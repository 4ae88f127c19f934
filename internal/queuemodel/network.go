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
		if !c.awaited {
			t.dropCopy(k)
		}
	default:
		t := m.step(s, "reads the reply to its enqueue", c.attempt)
		refused := !c.accepted && s.leases[c.lease].key != c.gate
		t.dropCopy(k)
		if t.attempts[c.attempt].stage == enqueuing {
			m.answer(t, c)
			last := &m.steps[len(m.steps)-1]
			last.refusal = refused && last.state.attempts[c.attempt].stage == enqueuing
		}
	}
	if m.lossy {
		t := m.step(s, "has a copy or its reply lost", c.attempt)
		t.dropCopy(k)
	}
}

func (s *state) dropCopy(k int8) {
	copy(s.copies[k:], s.copies[k+1:])
	s.copyCount--
	s.copies[s.copyCount] = enqueueCopy{}
}
