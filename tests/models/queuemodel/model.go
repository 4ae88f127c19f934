package queuemodel

import "github.com/holdfast-go/holdfast/tests/models/modelsearch"

// maxStates bounds a search: some gigabytes of memory.
const maxStates = 4_000_000

// A model searches all states of one scenario.
type model struct {
	scenario
	traced bool                      // steps that only runs of the code have: see trace.go
	alone  bool                      // nothing is known of other attempts: see follow.go
	n      int8                      // keys in all, under the first lease of each session
	modes  [maxKeys]member           // by key; keys of the second leases are n further
	owner  [maxKeys]int8             // sessions
	keys   [maxAttempts][2][]int8    // of an attempt, by its pair of leases
	rivals [maxKeys][]int8           // keys that exclude it
	refs   []*revision               // those of the state that is reduced
	steps  []modelsearch.Step[state] // from the state that is looked at
}

func newModel(s scenario) *model {
	m := &model{scenario: s}
	for _, p := range s.attempts {
		for _, e := range p.entries {
			m.n = max(m.n, e.key+1)
		}
	}
	for i, p := range s.attempts {
		for _, e := range p.entries {
			for pair := range int8(2) {
				k := e.key + pair*m.n
				m.modes[k], m.owner[k] = e, p.session
				m.keys[i][pair] = append(m.keys[i][pair], k)
			}
		}
	}
	m.findRivals(2 * m.n)
	return m
}

// findRivals finds which of the first keys exclude each other.
func (m *model) findRivals(count int8) {
	for k := range count {
		m.rivals[k] = nil
		for q := range count {
			if a, b := m.modes[k], m.modes[q]; q != k && a.queue == b.queue && (a.write || b.write) {
				m.rivals[k] = append(m.rivals[k], q)
			}
		}
	}
}

func (m *model) search() modelsearch.Result {
	return modelsearch.Model[state]{
		Start: m.start(), Steps: m.expand, Check: m.check, Finished: m.finished, Max: maxStates, Unaided: true,
	}.Search()
}

// start is the first state: each session has a pair of leases and its session key.
func (m *model) start() state {
	s := state{left: m.faults}
	for i := range s.attempts {
		s.attempts[i].stage = done
	}
	for i, p := range m.attempts {
		s.leases[2*p.session] = twin{granted: true, l1: true, l2: true, s: true}
		s.attempts[i].stage = idle
	}
	for _, p := range m.attempts {
		if p.next != 0 {
			s.attempts[p.next-1].stage = inLine
		}
	}
	return s
}

// step copies s for a step of an attempt or lease that is made sooner or later. The caller makes the change, before the
// next step.
//
//go:norace
func (m *model) step(s *state, what string, actor int8) *state {
	m.steps = append(m.steps, modelsearch.Step[state]{State: *s, Actor: actor, What: what})
	return &m.steps[len(m.steps)-1].State
}

// choice is step for what need not happen.
//
//go:norace
func (m *model) choice(s *state, what string, actor int8) *state {
	t := m.step(s, what, actor)
	m.steps[len(m.steps)-1].Choice = true
	return t
}

// fault is choice for what may go wrong while left, a field of s.left, says so.
//
//go:norace
func (m *model) fault(s *state, left *int8, what string, actor int8) *state {
	*left-- // in s for the copy only
	t := m.choice(s, what, actor)
	*left++
	return t
}

// expand finds all steps from s.
//
//go:norace
func (m *model) expand(s *state) []modelsearch.Step[state] {
	m.findSteps(s)
	for i := range m.steps {
		m.reduce(&m.steps[i].State)
	}
	return m.steps
}

// findSteps finds all steps from s, with the revisions that they have in s.
//
//go:norace
func (m *model) findSteps(s *state) {
	m.steps = m.steps[:0]
	for i := range m.attempts {
		m.attemptSteps(s, int8(i))
	}
	if m.alone {
		m.aloneSteps(s, 0)
		m.copySteps(s, 0)
		return
	}
	for n := range int8(maxLeases) {
		m.leaseSteps(s, n)
	}
	for n := range s.copies {
		m.copySteps(s, n)
	}
	for k := range 2 * m.n {
		m.keySteps(s, k)
	}
}

// own returns the keys of an attempt.
//
//go:norace
func (m *model) own(s *state, i int8) []int8 {
	a := &s.attempts[i]
	if keys := m.keys[i][a.pair]; !a.down {
		return keys
	}
	return m.keys[i][a.pair][1:]
}

// leaseOf returns the number of the lease under which a key is put.
//
//go:norace
func (m *model) leaseOf(k int8) int8 { return 2*m.owner[k] + k/m.n }

//go:norace
func has(keys []int8, k int8) bool {
	for _, q := range keys {
		if q == k {
			return true
		}
	}
	return false
}
