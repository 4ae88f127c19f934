package attachmodel

import (
	"fmt"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

// A scenario is what is searched.
type scenario struct {
	name   string
	left   budget
	broken rule
	expect string // what that leads to; "" is nothing
}

// A rule is one that a scenario breaks.
type rule string

const (
	holdsUntilReply   rule = "Detach ends the hold when its reply has come"
	detachIgnoresMod  rule = "Detach compares the create revision"
	detachLeavesClaim rule = "Detach leaves the claim on the session's lease"
	attachIgnoresMod  rule = "Attach compares the create revision"
	attachIgnoresGate rule = "Attach does not compare the gate"
	attachLeavesClaim rule = "Attach leaves the claim on the ticket's lease"
	claimKeepsName    rule = "the claim goes on naming the session that has queued"
	lostIsRefused     rule = "Attach does not look whether a copy of its own was carried out"
	sweepAnywhere     rule = "after an Attach that was given up E is deleted wherever it is"
)

type model struct {
	scenario
	steps []modelsearch.Step[state]
}

func (m *model) search() modelsearch.Result {
	s := state{mod: 1, left: m.left}
	for i := range s.sessions {
		s.sessions[i].l1, s.sessions[i].l2 = true, true
	}
	s.sessions[0].stage, s.sessions[0].mod = holding, 1
	return modelsearch.Model[state]{
		Start: s, Steps: m.expand, Check: m.check, Finished: m.finished, Max: 4_000_000, Unaided: true,
	}.Search()
}

func (m *model) step(s *state, actor int8, what string, change func(*state)) {
	t := *s
	change(&t)
	t.reduce()
	m.steps = append(m.steps, modelsearch.Step[state]{State: t, Actor: actor, What: what})
}

// choice is step for what need not happen; it uses up one of left, a field of s.left, if that is not nil.
func (m *model) choice(s *state, left *int8, actor int8, what string, change func(*state)) {
	if left != nil {
		if *left == 0 {
			return
		}
		*left-- // in s for the copy only
		defer func() { *left++ }()
	}
	m.step(s, actor, what, change)
	m.steps[len(m.steps)-1].Choice = true
}

func (m *model) expand(s *state) []modelsearch.Step[state] {
	m.steps = m.steps[:0]
	for i := range int8(sessions) {
		m.bearerSteps(s, i)
		m.leaseSteps(s, i)
	}
	m.copySteps(s)
	m.ticketSteps(s)
	m.handSteps(s)
	m.waiterSteps(s)
	return m.steps
}

// believes reports whether a session believes that it holds, or is about to by a reply that is not old.
func (m *model) believes(s *state, i int8) bool {
	at := s.sessions[i].stage
	return at == holding || at == ready || at == detaching && m.broken == holdsUntilReply
}

func (m *model) check(s *state) string {
	count := 0
	for i := range int8(sessions) {
		if m.believes(s, i) {
			count++
		}
	}
	switch {
	case count > 1:
		return fmt.Sprintf("exclusion: %d sessions hold", count)
	case count > 0 && s.waiter.holds:
		return "exclusion: the waiter holds beside a session"
	case s.waiter.delays && !s.faulty:
		return "needless: the waiter delays although nothing has gone wrong"
	}
	return ""
}

func (m *model) finished(s *state) bool {
	for i := range s.sessions {
		if s.sessions[i].stage != idle {
			return false
		}
	}
	return s.waiter.holds && s.entry == nowhere && s.claim == nowhere
}
