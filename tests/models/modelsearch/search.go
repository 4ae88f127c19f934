// Package modelsearch visits all states of a model of an algorithm, breadth first, and looks for one that breaks a
// rule. The models of this module are built on it.
package modelsearch

// Functions that each step passes through are marked go:norace: one goroutine searches, so that the race detector has
// nothing to find in them, and it would make the search ten times slower.

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// A Model is what is searched. States are compared by ==, so they hold no pointers, and those that differ in nothing
// that can still matter should be equal.
type Model[S comparable] struct {
	Start    S
	Steps    func(*S) []Step[S]
	Check    func(*S) string // what is wrong with a state, "" if nothing is
	Quiet    func(*S) string // the same, for states in which nothing happens by itself; may be nil
	Finished func(*S) bool   // such a state must be reachable from each state
	Unaided  bool            // by steps that are no choices
	Max      int             // of states: more make Search panic
}

// A Step leads to a state.
type Step[S comparable] struct {
	State  S
	Actor  int8   // who makes it,
	What   string // and what it is: both are told in a counterexample
	Choice bool   // need never be made: a client may go on as it is, a fault may not happen
	Again  bool   // the algorithm repeats itself: there must be no cycle through such a step
	Wrong  string // what is wrong with the step itself, "" if nothing is
}

func (s *Step[S]) told() string { return fmt.Sprintf("%d %s", s.Actor, s.What) }

// A Result says what a search has seen.
type Result struct {
	States, Steps int
	Wrong         string // what is wrong, with the steps to it; "" if nothing is
}

// Search visits all states. A counterexample is as short as can be.
func (m Model[S]) Search() Result {
	s := search[S]{Model: m, numbers: newTable()}
	wrong := s.run()
	return Result{States: len(s.parents), Steps: len(s.to), Wrong: wrong}
}

// A fingerprint stands for a state: the states themselves would take gigabytes. That two states of the four million
// that a search may have share one, and one of them is not looked at, has a chance of one in two million; and the seed
// differs in each run.
type fingerprint uint64

var seed = maphash.MakeSeed()

//go:norace
func fingerprintOf[S comparable](s *S) fingerprint { return fingerprint(maphash.Comparable(seed, *s)) }

// A search numbers the states in order of discovery.
type search[S comparable] struct {
	Model[S]
	numbers  table
	parents  []int32
	from, to []int32
	again    []bool  // of each edge
	finished []bool  // of each state
	next     fifo[S] // to be visited
}

func (s *search[S]) run() string {
	s.found(&s.Start, -1)
	if wrong := s.Check(&s.Start); wrong != "" {
		return wrong
	}
	for n := int32(0); int(n) < len(s.parents); n++ {
		if wrong := s.visit(s.next.pop(), n); wrong != "" {
			return wrong
		}
	}
	if n, ok := s.stuck(); ok {
		return s.told("stuck: from here on the end cannot be reached", n)
	}
	if n, ok := s.repeats(); ok {
		return s.told("livelock: this can be repeated for ever", n)
	}
	return ""
}

// visit looks at all steps from state n.
//
//go:norace
func (s *search[S]) visit(from *S, n int32) string {
	quiet := true
	steps := s.Steps(from)
	for i := range steps {
		step := &steps[i] // a state is large
		quiet = quiet && step.Choice
		known := len(s.parents)
		to := s.found(&step.State, n)
		wrong := step.Wrong
		if wrong == "" && len(s.parents) > known {
			wrong = s.Check(&step.State)
		}
		if wrong != "" {
			return s.told(wrong, n, step.told())
		}
		if to != n && !(s.Unaided && step.Choice) {
			s.from, s.to, s.again = append(s.from, n), append(s.to, to), append(s.again, step.Again)
		}
	}
	if quiet && s.Quiet != nil {
		if wrong := s.Quiet(from); wrong != "" {
			return s.told(wrong, n)
		}
	}
	return ""
}

// found returns the number of a state.
//
//go:norace
func (s *search[S]) found(state *S, parent int32) int32 {
	n, known := s.numbers.number(fingerprintOf(state), int32(len(s.parents)))
	if !known {
		if int(n) == s.Max {
			panic(fmt.Sprintf("there are more than %d states", s.Max))
		}
		s.parents = append(s.parents, parent)
		s.finished = append(s.finished, s.Finished(state))
		s.next.push(state)
	}
	return n
}

// told returns what is wrong, with the steps from the start to state n, and one more.
func (s *search[S]) told(wrong string, n int32, more ...string) string {
	var path []int32
	for ; n > 0; n = s.parents[n] {
		path = append(path, n)
	}
	lines := []string{wrong}
	state := s.Start
	for k := len(path) - 1; k >= 0; k-- {
		for _, step := range s.Steps(&state) {
			if s.numbers.slot(fingerprintOf(&step.State)).after == path[k]+1 {
				lines = append(lines, step.told())
				state = step.State
				break
			}
		}
	}
	return strings.Join(append(lines, more...), "\n\t")
}
