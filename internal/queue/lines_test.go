package queue

import (
	"fmt"
	"slices"
	"testing"
)

// joined returns a ticket in the line x whose caller is that number.
func joined(s *Lines[int], caller int) *Ticket[int] {
	t := &Ticket[int]{Caller: caller}
	s.Join(t, "x", false)
	return t
}

// queueUp returns the head of a line, and n tickets behind it.
func queueUp(n int) (head *Ticket[int], behind []*Ticket[int]) {
	s := new(Lines[int])
	head = joined(s, -1)
	for i := range n {
		behind = append(behind, joined(s, i))
	}
	return head, behind
}

func hasTurn[C any](t *Ticket[C]) bool { return len(t.Turn()) > 0 }

func TestTurnsComeInTheOrderOfTheCalls(t *testing.T) {
	t.Parallel()
	s := new(Lines[int])
	first, second, third := joined(s, 1), joined(s, 2), joined(s, 3)
	if !hasTurn(first) || hasTurn(second) {
		t.Fatal("not only the first has its turn")
	}
	first.Next()
	if !hasTurn(second) || hasTurn(third) || second.IsLast() {
		t.Fatal("not only the second has its turn after the first")
	}
	if next := second.TakeFirst(); next != third || !next.PassTurn() || !hasTurn(third) {
		t.Fatal("the third has no turn although it was passed")
	}
	third.Next()
	if _, _, _, exists := s.Shared("x"); exists || len(s.all) != 0 {
		t.Error("a line that is empty was not forgotten")
	}
	if _, _, exists := third.Line(10); exists {
		t.Error("a ticket of a line that was forgotten has a place in it")
	}
}

func TestJoinIfEmptyJoinsNoLineWithACaller(t *testing.T) {
	t.Parallel()
	s := new(Lines[int])
	head := joined(s, 1)
	if s.Join(&Ticket[int]{}, "x", true) || !head.IsLast() {
		t.Error("a ticket has joined a line that was not empty")
	}
	if !s.Join(&Ticket[int]{Alone: true}, "x", true) || !s.Join(&Ticket[int]{}, "y", true) || len(s.all) != 3 {
		t.Error("a ticket has not joined a line that was empty")
	}
}

func TestCanceledTicketsKeepTheOrderOfTheOthers(t *testing.T) {
	t.Parallel()
	head, behind := queueUp(7)
	for _, i := range []int{0, 3, 6, 3} { // ticket 3 twice
		if !behind[i].Cancel() {
			t.Errorf("ticket %d had its turn", i)
		}
	}
	if head.Cancel() {
		t.Error("the head was canceled")
	}
	var order []int
	for !head.IsLast() {
		order = append(order, head.TakeFirst().Caller)
	}
	if !slices.Equal(order, []int{1, 2, 4, 5}) {
		t.Errorf("the others came in order %v", order)
	}
	if taken := head.TakeFirst(); taken != nil {
		t.Errorf("an empty line gave %v", taken)
	}
}

// Canceled while its entry is being put, a ticket gets no turn, and the next one does.
func TestCanceledTicketsGetNoTurn(t *testing.T) {
	t.Parallel()
	head, behind := queueUp(2)
	taken := head.TakeFirst()
	if !taken.Cancel() || taken.PassTurn() || hasTurn(taken) {
		t.Error("a ticket that was canceled has its turn")
	}
	if taken.Next(); !hasTurn(behind[1]) {
		t.Error("the one behind it has no turn")
	}
}

// The time per ticket must not grow with the line: when a service shuts down, all are canceled at once.
func BenchmarkCancelAllTicketsOfALine(b *testing.B) {
	for _, n := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				_, behind := queueUp(n)
				b.StartTimer()
				for i := range behind {
					behind[len(behind)-1-i].Cancel()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/ticket")
		})
	}
}

func TestLineCountsNoFurtherThanItIsAsked(t *testing.T) {
	t.Parallel()
	const most = 10
	head, behind := queueUp(most + 2)
	all := append([]*Ticket[int]{head}, behind...)
	for i, want := range map[int]int{0: 0, 1: 1, 2: 2, most: most, most + 2: most} {
		if first, got, exists := all[i].Line(most); got != want || first != -1 || !exists {
			t.Errorf("%d are ahead of the caller at %d, want %d; the head is %d", got, i, want, first)
		}
	}
}

// A caller that has returned counts no longer once another one is the head, or waits.
func TestLineIsLeftOverIfAllItsCallersHaveReturned(t *testing.T) {
	t.Parallel()
	s := new(Lines[int])
	check := func(when string, wantHead, wantLength int, want bool) {
		t.Helper()
		head, length, leftOver, exists := s.Shared("x")
		if head != wantHead || length != wantLength || leftOver != want || !exists {
			t.Errorf("%s: %d is the head of %d, left over: %v", when, head, length, leftOver)
		}
		if heads := s.Heads("x"); slices.Contains(heads, wantHead) == want {
			t.Errorf("%s: the heads are %v", when, heads)
		}
	}
	head := joined(s, 1)
	check("the head waits or holds", 1, 1, false)
	head.Returned()
	check("the head has returned", 1, 1, true)
	joined(s, 2)
	check("the head has returned, another waits", 1, 2, false)
	head.Next()
	check("an earlier one has returned", 2, 1, false)
	if heads := s.Heads("y"); heads != nil {
		t.Errorf("lines with another name have the heads %v", heads)
	}
}
