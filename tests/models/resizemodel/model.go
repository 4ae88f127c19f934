package resizemodel

import (
	"fmt"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

// A scenario is what is searched.
type scenario struct {
	name     string
	members  int8
	from, to int8 // the numbers, 1 or 2
	barrier  bool // nothing is held during the step
	left     budget
	broken   rule
	expect   string // what that leads to; "" is nothing
}

// A rule is one that a scenario breaks.
type rule string

const (
	noStep         rule = "the new number is put at once"
	entriesIgnored rule = "the new number is put while entries stand from before the step"
	claimsIgnored  rule = "the new number is put while claims stand from before the step"
	notConfirmed   rule = "a member holds without having read the number"
	confirmedOnce  rule = "a member reads the number once under each lease"
	halfTogether   rule = "during the step a member locks one of the shards that exchange tenants"
	marksByIndex   rule = "a mark names the index of a shard"
)

type model struct {
	scenario
	steps []modelsearch.Step[state]
	wrong string // with the step that is made now
}

func (m *model) search() modelsearch.Result {
	return modelsearch.Model[state]{
		Start: state{left: m.left}, Steps: m.expand, Check: m.check, Finished: m.finished, Max: 4_000_000, Unaided: true,
	}.Search()
}

func (m *model) step(s *state, actor int8, what string, change func(*state)) {
	m.wrong = ""
	t := *s
	change(&t)
	t.reduce()
	m.steps = append(m.steps, modelsearch.Step[state]{State: t, Actor: actor, What: what, Wrong: m.wrong})
}

// choice is step for what need not happen.
func (m *model) choice(s *state, actor int8, what string, change func(*state)) {
	m.step(s, actor, what, change)
	m.steps[len(m.steps)-1].Choice = true
}

func (m *model) expand(s *state) []modelsearch.Step[state] {
	m.steps = m.steps[:0]
	for i := range m.members {
		m.memberSteps(s, i)
	}
	m.operatorSteps(s)
	if w := s.late; w.token != 0 {
		m.choice(s, -1, fmt.Sprintf("a late write to tenant %d arrives", w.tenant), func(t *state) {
			t.late = write{}
			if older := w.token < t.wrote[w.tenant]; t.write(w) && older {
				m.wrong = "stale: a late write lands after one with a larger token"
			}
		})
	}
	return m.steps
}

// operatorSteps: who changes the number, -1 in a counterexample.
func (m *model) operatorSteps(s *state) {
	switch s.number.phase {
	case old:
		m.step(s, -1, "the step is put", func(t *state) {
			t.number = number{step, t.next()}
			if m.broken == noStep {
				t.number = number{phase: newest}
			}
		})
	case step:
		if m.mayFinish(s) {
			m.step(s, -1, "the new number is put", func(t *state) { t.number = number{phase: newest} })
		}
		if s.left.departs > 0 {
			m.choice(s, -1, "the operator goes away, and the step ends", func(t *state) {
				t.left.departs--
				t.number = number{}
			})
		}
	case newest:
	}
}

// mayFinish is what the Txn compares that puts the new number.
func (m *model) mayFinish(s *state) bool {
	for i := range s.keys {
		for _, q := range s.keys[i] {
			entry := q.entry != 0 && q.entry < s.number.began
			dead := q.entry == 0 && q.claim != 0 && q.claim < s.number.began
			if entry && m.broken != entriesIgnored || dead && m.broken != claimsIgnored {
				return false
			}
		}
	}
	return true
}

// owners returns how many functions serve a tenant, as their members trust.
func (m *model) owners(s *state, tenant int8) (count int) {
	for i := range m.members {
		a := &s.members[i]
		for n, u := range m.units(a.knows.phase) {
			for _, t := range u.tenants {
				if t == tenant && a.holds[n].stage == holding {
					count++
				}
			}
		}
	}
	return count
}

func (m *model) check(s *state) string {
	for t := range int8(maxShards) {
		if n := m.owners(s, t); n > 1 {
			return fmt.Sprintf("owners: tenant %d has %d", t, n)
		}
	}
	return ""
}

func (m *model) finished(s *state) bool {
	for i := range m.members {
		if s.members[i].knows.phase != newest || s.members[i].lost {
			return false
		}
	}
	return m.owners(s, 0) == 1 && m.owners(s, 1) == 1
}
