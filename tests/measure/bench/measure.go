package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
)

// stopwatch measures the time between StartTimer and StopTimer. The zero value is stopped.
type stopwatch struct {
	running bool
	since   time.Time
	took    time.Duration
}

// StartTimer starts the watch, or does nothing if it is running.
func (w *stopwatch) StartTimer() {
	if !w.running {
		w.running, w.since = true, time.Now()
	}
}

// StopTimer stops the watch, or does nothing if it is stopped.
func (w *stopwatch) StopTimer() {
	w.took, w.running = w.elapsed(), false
}

func (w *stopwatch) elapsed() time.Duration {
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

// series is the measurements of one side: the mean per operation of each round.
type series struct {
	took   []float64 // nanoseconds
	allocs []float64 // of the whole process
}

// result is the measurements of one subject on one cluster size.
type result struct {
	subject
	size  int
	sides map[string]series // by the name of the side
}

// plan is how to measure.
type plan struct {
	rounds int
	time   time.Duration // for each side of a subject, over all rounds
}

// of returns the plan for a subject that needs at least so many rounds.
func (p plan) of(sub subject) plan {
	p.rounds = max(p.rounds, sub.rounds)
	return p
}

// measure runs the sides of a subject in turns, so that other load on the machine affects them equally. Each round has
// an order of its own: what a side leaves behind in etcd does not always cost the same other side.
func (p plan) measure(etcds stores, sub subject, size int) (_ result, err error) {
	r := result{subject: sub, size: size, sides: make(map[string]series)}
	type ready struct {
		side
		*env
		op
	}
	writers, err := etcds.startWriters(sub, size)
	if err != nil {
		return r, err
	}
	defer writers.close()
	var all []ready
	defer func() {
		for _, s := range all {
			s.env.close()
		}
	}()
	for _, sd := range sub.sides() {
		e, call, err := etcds.setUp(sub, size, sd)
		if err != nil {
			return r, err
		}
		all = append(all, ready{sd, e, call})
	}
	p = p.of(sub)
	order := rand.New(rand.NewPCG(1, 1))
	for range p.rounds {
		for _, i := range order.Perm(len(all)) {
			s := all[i]
			took, allocs, err := p.round(s.env, s.op, sub)
			if err != nil {
				return r, fmt.Errorf("%s: %w", s.env.name, err)
			}
			of := r.sides[s.side.name]
			r.sides[s.side.name] = series{append(of.took, took), append(of.allocs, allocs)}
		}
	}
	return r, nil
}

// round returns the mean of an operation over one round.
func (p plan) round(e *env, call op, sub subject) (took, allocs float64, err error) {
	// The first call is a warm-up: it opens connections and touches new memory.
	if err := errors.Join(e.prepare(), call(&stopwatch{})); err != nil {
		return 0, 0, err
	}
	w, n, before := &stopwatch{}, 0, mallocs()
	for w.StartTimer(); n == 0 || n != sub.calls && w.elapsed() < p.time/time.Duration(p.rounds); n++ {
		if err := call(w); err != nil {
			return 0, 0, err
		}
	}
	w.StopTimer()
	ops := float64(n * sub.perCall())
	return float64(w.took) / ops, float64(mallocs()-before) / ops, nil
}
