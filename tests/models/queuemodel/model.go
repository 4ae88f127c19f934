package queuemodel

import (
	"slices"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

// maxStates bounds a search: some 3 GB of memory.
const maxStates = 4_000_000

// A model searches all states of one scenario.
type model struct {
	scenario
	members  [][]member                // of each attempt's set
	modes    bool                      // some are shared
	several  bool                      // some attempts have several entries
	single   bool                      // no two names are of one set: see follow.go
	steps    []modelsearch.Step[state] // from the state that is looked at
	refs     []*revision               // those of the state that is reduced
	past     revision                  // what is judged in a step was seen a lock delay ago up to here: see judge
	overlaps int                       // states in which a newcomer holds beside a revoked holder that believes
	behind   bool                      // newcomers are told apart by what they queue behind
	late     int                       // overlaps of those that queued behind one who was there before the revocation
}

func newModel(s scenario) *model {
	m := &model{scenario: s, members: s.sets()}
	for _, set := range m.members {
		m.several = m.several || len(set) > 1
		m.modes = m.modes || slices.ContainsFunc(set, func(o member) bool { return o.shared })
	}
	return m
}

func (m *model) search() modelsearch.Result {
	return modelsearch.Model[state]{
		Start: m.start(), Steps: m.expand, Check: m.check, Finished: m.finished, Max: maxStates,
	}.Search()
}

// start is the first state: each session has a lease and its session key.
func (m *model) start() state {
	s := state{now: 1}
	for n := range m.sessions {
		s.leases[2*n] = lease{granted: true, alive: true, key: s.now}
		s.sessions[n] = session{lease: 2 * n, gate: s.now}
	}
	for i := range s.attempts {
		if i >= len(m.attempts) {
			s.attempts[i].stage = done
		}
	}
	m.reduce(&s)
	return s
}

// step copies s for a step of an attempt, session or lease; the caller makes the change, before the next step.
//
//go:norace
func (m *model) step(s *state, what string, actor int8) *state {
	m.steps = append(m.steps, modelsearch.Step[state]{State: *s, Actor: actor, What: what})
	return &m.last().State
}

// last is the step that is being made.
func (m *model) last() *modelsearch.Step[state] { return &m.steps[len(m.steps)-1] }

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
	for k := range s.copyCount {
		m.copySteps(s, k)
	}
	for k := range s.entryCount {
		m.keepSteps(s, k)
		m.handSteps(s, k)
		m.removalSteps(s, k)
	}
	for n := range m.sessions {
		m.leaseSteps(s, 2*n)
		m.leaseSteps(s, 2*n+1)
		m.sessionSteps(s, n)
	}
}
