package queue

import (
	"fmt"
	"slices"
	"testing"
)

// queueUp joins a line behind a head that stays.
func queueUp(n int) (*line, []*ticket) {
	ls := &lines{open: make(map[string]*line)}
	q := &Queue{entries: "/x/@/"}
	ln := ls.join(&ticket{q: q, turn: make(chan turn, 1)}, false)
	all := make([]*ticket, n)
	for i := range all {
		all[i] = &ticket{q: q}
		ls.join(all[i], false)
	}
	return ln, all
}

func TestTicketsThatLeaveALineKeepTheOrderOfTheOthers(t *testing.T) {
	ln, all := queueUp(7)
	for _, i := range []int{0, 3, 6, 3} { // the last one again
		if !ln.leave(all[i]) {
			t.Errorf("ticket %d had its turn", i)
		}
	}
	var order []int
	for !ln.alone() {
		order = append(order, slices.Index(all, ln.first()))
	}
	if !slices.Equal(order, []int{1, 2, 4, 5}) {
		t.Errorf("the others came in order %v", order)
	}
	if taken := ln.first(); taken != nil {
		t.Errorf("an empty line gave %v", taken)
	}
}

// The time per ticket must not grow with the line: all are cancelled at once
// when a service shuts down.
func BenchmarkAllLeaveALine(b *testing.B) {
	for _, n := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				ln, all := queueUp(n)
				b.StartTimer()
				for i := range all {
					ln.leave(all[len(all)-1-i])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/ticket")
		})
	}
}
