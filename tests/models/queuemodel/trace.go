package queuemodel

func (m *model) tracedCopySteps(s *state, n int) {}
