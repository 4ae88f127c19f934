package main

import "slices"

// subject is one thing that is measured, on every side that can do it.
type subject struct {
	name  string // "handover/sessions=2"; what -run and -bench select by
	what  string // one operation in words, for the table
	short string // the same for the chart, at most 36 characters; empty if it is not for the chart

	each    int  // operations in one call of an op; 0 means 1
	writers int  // goroutines that keep the store busy meanwhile
	alone   bool // needs no etcd: what is measured is the client's own part, allocations too

	holdfast, upstream, floor setup // nil: that side cannot do it
}

// setup brings one side to where its operation can be called, over and over.
// Whatever it starts ends with e.
type setup func(e *env) (op, error)

// op is one operation, or subject.each of them. What does not belong to it is
// done while t stands still.
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

// sides are those that can do it, in the order in which they take turns.
func (s subject) sides() []side {
	all := []side{{"holdfast", s.holdfast}, {"upstream", s.upstream}, {"floor", s.floor}}
	return slices.DeleteFunc(all, func(s side) bool { return s.setup == nil })
}

// sizes are the clusters it is measured on.
func (s subject) sizes() []int {
	if s.alone {
		return []int{0}
	}
	return []int{1, 3}
}

func (s subject) perCall() int { return max(1, s.each) }

// subjects are all there are, in the order of the table.
func subjects() []subject {
	return slices.Concat(handovers(), uncontended(), tries(), oneSession(), releases(), elections(), floors(), overhead())
}
