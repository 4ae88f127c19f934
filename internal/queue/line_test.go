package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/reads"
)

// queueUp returns a line whose head stays, and n tickets behind it.
func queueUp(n int) (*line, []*ticket) {
	s := &shared{lines: make(map[lineKey]*line)}
	q := &Queue{Scope: reads.Scope{At: layout.Queue{Entries: "/x/@/"}}}
	ln := s.join(&ticket{q: q, turn: make(chan *attempt, 1)}, false)
	all := make([]*ticket, n)
	for i := range all {
		all[i] = &ticket{q: q}
		s.join(all[i], false)
	}
	return ln, all
}

func TestCanceledTicketsKeepTheOrderOfTheOthers(t *testing.T) {
	ln, all := queueUp(7)
	for _, i := range []int{0, 3, 6, 3} { // ticket 3 twice
		if !ln.cancel(all[i]) {
			t.Errorf("ticket %d had its turn", i)
		}
	}
	var order []int
	for !ln.headAlone() {
		order = append(order, slices.Index(all, ln.takeFirst()))
	}
	if !slices.Equal(order, []int{1, 2, 4, 5}) {
		t.Errorf("the others came in order %v", order)
	}
	if taken := ln.takeFirst(); taken != nil {
		t.Errorf("an empty line gave %v", taken)
	}
}

// The time per ticket must not grow with the line: when a service shuts down, all are
// canceled at once.
func BenchmarkCancelAllTicketsOfALine(b *testing.B) {
	for _, n := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				ln, all := queueUp(n)
				b.StartTimer()
				for i := range all {
					ln.cancel(all[len(all)-1-i])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/ticket")
		})
	}
}

// A caller that has returned counts no longer once another one is the head, or waits.
func TestLineIsLeftOverIfAllItsCallersHaveReturned(t *testing.T) {
	t.Parallel()
	a, b := new(ticket), new(ticket)
	for name, c := range map[string]struct {
		head, returned, waits *ticket
		want                  bool
	}{
		"the head waits or holds":              {a, nil, nil, false},
		"the head has returned":                {a, a, nil, true},
		"the head has returned, another waits": {a, a, b, false},
		"an earlier one has returned":          {b, a, nil, false},
	} {
		ln := &line{head: c.head, returned: c.returned}
		if c.waits != nil {
			ln.waiting.PushBack(c.waits)
		}
		if got := ln.leftOver(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
