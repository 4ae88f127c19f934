package main

import "slices"

// subject is an operation to measure on each side that supports it.
type subject struct {
	name  string // such as handover/sessions=2; -run and -bench select by it
	what  string // describes one operation, for the table
	short string // label in the chart, at most 36 characters; empty: not in the chart

	each       int  // operations in one call of an op; 0 means 1
	calls      int  // of an op in one round at most; 0: as long as the plan says
	rounds     int  // to measure at least, so that small differences show; 0: as the plan says
	writers    int  // goroutines that keep the store busy during the measurement
	clientOnly bool // measures only the client, time and allocations; needs no etcd

	holdfast, upstream, floor setup // nil: not measured on that side
}

// setup prepares one side and returns its operation. What it starts ends with e.
type setup func(e *env) (op, error)

// op runs one operation, or subject.each of them. It stops t during work that does not count.
type op func(t timer) error

// timer is the part of *testing.B that an op needs.
type timer interface {
	StartTimer()
	StopTimer()
}

// side is one column of the table.
type side struct {
	name  string
	setup setup
}

// sides returns the sides to measure, in the order of their turns.
func (s subject) sides() []side {
	all := []side{{"holdfast", s.holdfast}, {"upstream", s.upstream}, {"floor", s.floor}}
	return slices.DeleteFunc(all, func(s side) bool { return s.setup == nil })
}

// sizes returns the cluster sizes to measure on; 0 stands for no cluster.
func (s subject) sizes() []int {
	if s.clientOnly {
		return []int{0}
	}
	return []int{1, 3}
}

func (s subject) perCall() int { return max(1, s.each) }

// subjects returns all subjects, in the order of the table.
func subjects() []subject {
	return slices.Concat(handovers(), uncontended(), tryLocks(), oneSession(), releases(), elections(), watches(),
		floors(), overhead())
}
