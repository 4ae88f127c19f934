// Package modeltrace compares runs of the code with a model, step by step.
//
// A run is a list of events: what etcd did, and what the clients said of themselves. The model accepts it if it can
// make the same steps in the same order. What no event tells, such as a lost copy or a call that gives up, may happen
// in the model at any time. So the check keeps all states that agree with the events so far; an event that is possible
// in none of them is refused.
package modeltrace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

// A Model is what runs are compared with.
type Model[S comparable, E fmt.Stringer] struct {
	Start   []S // the states of which one is the first
	Steps   func(*S) []modelsearch.Step[S]
	Unseen  func(from *S, step *modelsearch.Step[S]) bool      // nothing tells of the step
	Is      func(e E, from *S, step *modelsearch.Step[S]) bool // the step is the event
	Nothing func(E, *S) bool                                   // the event may happen while the model stays as it is
	Happens func(E, *S) bool                                   // the event changes the state by itself; may be nil
	Reduce  func(*S)                                           // as before states are compared in a search
}

// MostStates bounds the states that agree with a run. A run with more of them is not followed to its end.
const MostStates = 20_000

// states are those that agree with the events so far.
type states[S comparable] map[S]struct{}

// Refused returns what is wrong with a run; "" if the model accepts it, or the run cannot be followed to its end. most
// is the largest number of states that agreed with the events up to one of them.
func (m Model[S, E]) Refused(events []E) (wrong string, most int) {
	all := make(states[S])
	for _, s := range m.Start {
		all[s] = struct{}{}
	}
	for n, e := range events {
		m.settle(all)
		if most = max(most, len(all)); most > MostStates {
			return "", most
		}
		next := m.after(all, e)
		if len(next) > 0 {
			all = next
			continue
		}
		lines := []string{fmt.Sprintf("event %d of %d is not a step of the model: %v", n, len(events), e)}
		for k, before := range events[:n] {
			lines = append(lines, fmt.Sprintf("%4d %v", k, before))
		}
		lines = append(lines, "the model may go on so:")
		lines = append(lines, m.offers(all)...)
		return strings.Join(lines, "\n\t"), most
	}
	return "", most
}

// settle adds the states that steps lead to of which nothing tells.
func (m Model[S, E]) settle(all states[S]) {
	var todo []S
	for s := range all {
		todo = append(todo, s)
	}
	for len(todo) > 0 && len(all) <= MostStates {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		steps := m.Steps(&s)
		for i := range steps {
			st := &steps[i] // a state is large
			if !m.Unseen(&s, st) {
				continue
			}
			m.Reduce(&st.State)
			if _, known := all[st.State]; !known {
				all[st.State] = struct{}{}
				todo = append(todo, st.State)
			}
		}
	}
}

// after returns the states that an event leads to.
func (m Model[S, E]) after(all states[S], e E) states[S] {
	next := make(states[S])
	for s := range all {
		if m.Nothing(e, &s) {
			next[s] = struct{}{}
		}
		if t := s; m.Happens != nil && m.Happens(e, &t) {
			m.Reduce(&t)
			next[t] = struct{}{}
			continue
		}
		steps := m.Steps(&s)
		for i := range steps {
			st := &steps[i]
			if !m.Is(e, &s, st) {
				continue
			}
			m.Reduce(&st.State)
			next[st.State] = struct{}{}
		}
	}
	return next
}

// offers lists the steps that some events would be.
func (m Model[S, E]) offers(all states[S]) (lines []string) {
	for s := range all {
		for _, st := range m.Steps(&s) {
			if !m.Unseen(&s, &st) {
				lines = append(lines, fmt.Sprintf("%d %s", st.Actor, st.What))
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
