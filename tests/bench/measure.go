package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// watch is a stopwatch. The zero watch stands still.
type watch struct {
	running bool
	since   time.Time
	took    time.Duration
}

// StartTimer lets it go on; nothing if it runs.
func (w *watch) StartTimer() {
	if !w.running {
		w.running, w.since = true, time.Now()
	}
}

// StopTimer has it stand still; nothing if it does.
func (w *watch) StopTimer() {
	w.took, w.running = w.elapsed(), false
}

// elapsed is what it shows.
func (w *watch) elapsed() time.Duration {
	if w.running {
		return w.took + time.Since(w.since)
	}
	return w.took
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// series is what was measured of one side: for each round the mean of one
// operation.
type series struct {
	took   []float64 // nanoseconds
	allocs []float64 // of the whole process
}

// result is what was measured of one subject on one store.
type result struct {
	subject
	size  int
	sides map[string]series // by the name of the side
}

// plan is how to measure.
type plan struct {
	rounds int
	time   time.Duration // for each side of a subject, all rounds together
}

// measure runs the sides of a subject on one store in turns, so that whatever
// else the machine does falls on all of them.
func (p plan) measure(etcds stores, sub subject, size int) (_ result, err error) {
	r := result{subject: sub, size: size, sides: make(map[string]series)}
	type ready struct {
		side
		*env
		op
	}
	busy, err := etcds.busy(sub, size)
	if err != nil {
		return r, err
	}
	defer busy.close()
	var all []ready
	defer func() {
		for _, s := range all {
			s.env.close()
		}
	}()
	for _, sd := range sub.sides() {
		e, call, err := etcds.begin(sub, size, sd)
		if err != nil {
			return r, err
		}
		all = append(all, ready{sd, e, call})
	}
	for range p.rounds {
		for _, s := range all {
			took, allocs, err := p.round(s.env, s.op, sub.perCall())
			if err != nil {
				return r, fmt.Errorf("%s: %w", s.env.name, err)
			}
			of := r.sides[s.side.name]
			r.sides[s.side.name] = series{append(of.took, took), append(of.allocs, allocs)}
		}
	}
	return r, nil
}

// round is the mean of an operation over one round.
func (p plan) round(e *env, call op, each int) (took, allocs float64, err error) {
	// Once more than it takes: connections and pages are cold the first time.
	if err := errors.Join(e.prepare(), call(&watch{})); err != nil {
		return 0, 0, err
	}
	w, n, before := &watch{}, 0, mallocs()
	for w.StartTimer(); n == 0 || w.elapsed() < p.time/time.Duration(p.rounds); n++ {
		if err := call(w); err != nil {
			return 0, 0, err
		}
	}
	w.StopTimer()
	ops := float64(n * each)
	return float64(w.took) / ops, float64(mallocs()-before) / ops, nil
}
