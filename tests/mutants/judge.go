//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// A verdict is what the tests have shown of a mutant.
type verdict struct {
	Key     string
	Outcome string
	Test    string        `json:",omitempty"` // the first that failed
	Ran     int           // tests
	Left    int           `json:",omitempty"` // tests that could tell and were not run
	CPU     time.Duration // of the tests
	m       *mutant
}

func (v verdict) killed() bool {
	return v.Outcome == failed || v.Outcome == panicked || v.Outcome == timedOut
}

// judge runs the tests that could tell each mutant, and calls done with each verdict.
func (r *runner) judge(mutants []*mutant, tests []*test, budget time.Duration, done func(verdict)) {
	differs, reached := make(map[int][]*test), make(map[int]bool)
	for _, t := range tests {
		for _, id := range t.Reached {
			reached[id] = true
		}
		if t.Bad != "" {
			continue
		}
		for _, id := range t.Differs {
			differs[id] = append(differs[id], t)
		}
	}
	var mu sync.Mutex // held during done
	r.each(len(mutants), func(i int) {
		m := mutants[i]
		v := verdict{Key: m.key(), Outcome: notCovered, m: m}
		switch {
		case len(differs[m.id]) > 0:
			r.judgeBy(&v, differs[m.id], budget)
		case reached[m.id]:
			v.Outcome = noDiff
		}
		mu.Lock()
		defer mu.Unlock()
		done(v)
	})
}

// judgeBy runs tests until one fails or the budget is spent: those of the mutant's package first, those of -with last,
// and the quickest first.
func (r *runner) judgeBy(v *verdict, tests []*test, budget time.Duration) {
	rank := func(t *test) int {
		switch {
		case t.bin.pkg == v.m.pkg.path:
			return 0
		case !t.bin.also:
			return 1
		}
		return 2
	}
	tests = slices.Clone(tests)
	slices.SortFunc(tests, func(a, b *test) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a.CPU, b.CPU)) })
	for i, t := range tests {
		if budget -= t.CPU; budget < 0 && i > 0 {
			tests, v.Left = tests[:i], len(tests)-i
			break
		}
	}
	for _, batch := range batches(tests) {
		res := r.runBatch(v.m.id, batch)
		v.Outcome, v.Test = res.outcome, res.test
		v.Ran += len(batch)
		v.CPU += res.cpu
		if v.killed() {
			return
		}
	}
}

// batches divides tests into runs: each of one binary, the first ones small.
func batches(tests []*test) [][]*test {
	var order []*binary
	byBinary := make(map[*binary][]*test)
	for _, t := range tests {
		if byBinary[t.bin] == nil {
			order = append(order, t.bin)
		}
		byBinary[t.bin] = append(byBinary[t.bin], t)
	}
	var all [][]*test
	for _, b := range order {
		rest := byBinary[b]
		for size := 5; len(rest) > 0; size *= 6 {
			n := min(size, len(rest))
			all, rest = append(all, rest[:n]), rest[n:]
		}
	}
	return all
}

func (r *runner) runBatch(id int, batch []*test) result {
	var names []string
	var cpu, wall time.Duration
	for _, t := range batch {
		names = append(names, t.Name)
		cpu += t.CPU
		wall += t.Wall
	}
	// The machine may be busy: only the limit of processor time is narrow.
	seconds := int(math.Ceil(3 + 4*cpu.Seconds()))
	return r.run(batch[0].bin, names, 5*time.Second+10*wall, fmt.Sprint("MUTANT=", id), fmt.Sprint("MUTANT_CPU=", seconds))
}
