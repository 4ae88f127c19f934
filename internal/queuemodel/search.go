package queuemodel

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// maxStates bounds a search: some 3 GB of memory.
const maxStates = 4_000_000

// A model searches all states of one scenario.
type model struct {
	scenario
	members   [][]member // of each attempt's set
	modes     bool       // some are shared
	steps     []step     // from the state that is looked at
	violation string
	overlaps  int // states in which a newcomer holds beside a revoked holder that believes
}

// A step leads to a state. It names the attempt, session or lease that acts.
type step struct {
	state   state
	actor   int8
	what    string
	refusal bool // by the gate: the attempt has to send its enqueue again
}

// step copies s for a step; the caller makes the change, before the next step.
func (m *model) step(s *state, what string, actor int8) *state {
	m.steps = append(m.steps, step{state: *s, actor: actor, what: what})
	return &m.steps[len(m.steps)-1].state
}

func (m *model) violated(what string) {
	if m.violation == "" {
		m.violation = what
	}
}

// expand finds all steps from s.
func (m *model) expand(s *state) []step {
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
	for i := range m.steps {
		m.reduce(&m.steps[i].state)
	}
	return m.steps
}

// A fingerprint stands for a state: two states have the same one with a chance of 2^-128. To keep the states themselves
// would take gigabytes.
type fingerprint [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func fingerprintOf(s *state) fingerprint {
	return fingerprint{maphash.Comparable(seeds[0], *s), maphash.Comparable(seeds[1], *s)}
}

// A graph is what a search has seen. States are numbered in order of discovery.
type graph struct {
	parents  []int32
	from, to []int32
	refusals []bool // of each edge
	finished []bool // of each state
}

// search visits all states, breadth first, so that a counterexample is as short
// as can be. It returns what is wrong, "" when nothing is.
func (m *model) search() (g graph, wrong string) {
	m.members = m.sets()
	for _, set := range m.members {
		m.modes = m.modes || slices.ContainsFunc(set, func(o member) bool { return o.shared })
	}
	numbers := make(map[fingerprint]int32)
	var level, next []state
	visit := func(s *state, parent int32) int32 {
		f := fingerprintOf(s)
		n, seen := numbers[f]
		if !seen {
			n = int32(len(g.parents))
			if n == maxStates {
				panic("scenario " + m.name + " is too large")
			}
			numbers[f] = n
			g.parents = append(g.parents, parent)
			g.finished = append(g.finished, m.finished(s))
			next = append(next, *s)
			m.check(s)
		}
		return n
	}
	start := m.start()
	visit(&start, -1)
	for n := int32(0); len(next) > 0; {
		level, next = next, level[:0]
		for i := range level {
			for _, step := range m.expand(&level[i]) {
				violation := m.violation // by the step itself
				to := visit(&step.state, n)
				if m.violation != "" {
					trace := m.trace(g, numbers, n)
					if violation == "" {
						trace = append(trace, m.describe(step))
					}
					return g, m.violation + "\n\t" + strings.Join(trace, "\n\t")
				}
				if to != n {
					g.from, g.to, g.refusals = append(g.from, n), append(g.to, to), append(g.refusals, step.refusal)
				}
			}
			n++
		}
	}
	if n, ok := g.stuck(); ok {
		return g, "stuck: from here on an attempt cannot end, or a sweeper not become idle\n\t" +
			strings.Join(m.trace(g, numbers, n), "\n\t")
	}
	if n, ok := g.refusedForEver(); ok {
		return g, "livelock: the gate refuses an attempt, and can do so for ever\n\t" +
			strings.Join(m.trace(g, numbers, n), "\n\t")
	}
	return g, ""
}

// trace tells the steps from the start to state n.
func (m *model) trace(g graph, numbers map[fingerprint]int32, n int32) (told []string) {
	var path []int32
	for ; n > 0; n = g.parents[n] {
		path = append(path, n)
	}
	s := m.start()
	for k := len(path) - 1; k >= 0; k-- {
		for _, step := range m.expand(&s) {
			if found, ok := numbers[fingerprintOf(&step.state)]; ok && found == path[k] {
				told = append(told, m.describe(step))
				s = step.state
				break
			}
		}
	}
	return told
}

func (m *model) describe(s step) string { return fmt.Sprintf("%d %s", s.actor, s.what) }

// stuck returns a state from which no finished one can be reached.
func (g *graph) stuck() (int32, bool) {
	into := newAdjacency(len(g.parents), g.to, g.from)
	good := append([]bool(nil), g.finished...)
	var todo []int32
	for n := range good {
		if good[n] {
			todo = append(todo, int32(n))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range into.of(n) {
			if !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	for n := range good {
		if !good[n] {
			return int32(n), true
		}
	}
	return 0, false
}

// refusedForEver returns a state on a cycle that goes through a refusal by the gate.
func (g *graph) refusedForEver() (int32, bool) {
	component := g.components()
	for k, refusal := range g.refusals {
		if refusal && component[g.from[k]] == component[g.to[k]] {
			return g.from[k], true
		}
	}
	return 0, false
}

// components numbers the strongly connected components (Tarjan's algorithm, without recursion).
func (g *graph) components() []int32 {
	count := len(g.parents)
	out := newAdjacency(count, g.from, g.to)
	index := make([]int32, count) // from 1, in order of discovery
	low := make([]int32, count)   // once the component is known: its first index, negated
	var path, open []int32
	edge := append([]int32(nil), out.first[:count]...)
	found := int32(0)
	for root := range int32(count) {
		if index[root] != 0 {
			continue
		}
		path = append(path, root)
		for len(path) > 0 {
			n := path[len(path)-1]
			if index[n] == 0 {
				found++
				index[n], low[n] = found, found
				open = append(open, n)
			}
			if edge[n] < out.first[n+1] {
				to := out.edges[edge[n]]
				edge[n]++
				if index[to] == 0 {
					path = append(path, to)
				} else if low[to] > 0 {
					low[n] = min(low[n], index[to])
				}
				continue
			}
			path = path[:len(path)-1]
			if low[n] == index[n] {
				for {
					last := open[len(open)-1]
					open = open[:len(open)-1]
					low[last] = -index[n]
					if last == n {
						break
					}
				}
			}
			if len(path) > 0 && low[n] > 0 {
				parent := path[len(path)-1]
				low[parent] = min(low[parent], low[n])
			}
		}
	}
	return low
}

// An adjacency lists the edges of each node.
type adjacency struct{ first, edges []int32 }

func newAdjacency(count int, from, to []int32) adjacency {
	a := adjacency{make([]int32, count+1), make([]int32, len(to))}
	for _, n := range from {
		a.first[n+1]++
	}
	for n := range count {
		a.first[n+1] += a.first[n]
	}
	next := append([]int32(nil), a.first[:count]...)
	for k, n := range from {
		a.edges[next[n]] = to[k]
		next[n]++
	}
	return a
}

func (a adjacency) of(n int32) []int32 { return a.edges[a.first[n]:a.first[n+1]] }
