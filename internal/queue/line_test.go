package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/layout"
)

// numbered returns a caller that has joined no line. Its revision tells it from others.
func numbered(entries string, n int64) *caller {
	return &caller{q: &Queue{scope: scope{At: layout.Keyspace{Entries: entries}}}, rev: n}
}

// joined returns a caller in the line x whose caller is that number.
func joined(s *lines, n int64) *caller {
	t := numbered("x", n)
	s.join(t)
	return t
}

// queueUp returns the head of a line, and n callers behind it.
func queueUp(n int) (head *caller, behind []*caller) {
	s := new(lines)
	head = joined(s, -1)
	for i := range n {
		behind = append(behind, joined(s, int64(i)))
	}
	return head, behind
}

func hasTurn(t *caller) bool { return len(t.turn) > 0 }

func TestTurnsComeInTheOrderOfTheCalls(t *testing.T) {
	t.Parallel()
	s := new(lines)
	first, second, third := joined(s, 1), joined(s, 2), joined(s, 3)
	if !hasTurn(first) || hasTurn(second) {
		t.Fatal("not only the first has its turn")
	}
	first.next()
	if !hasTurn(second) || hasTurn(third) || second.isLast() {
		t.Fatal("not only the second has its turn after the first")
	}
	if next := second.takeFirst(); next != third || !next.passTurn() || !hasTurn(third) {
		t.Fatal("the third has no turn although it was passed")
	}
	third.next()
	if s.length("x") != 0 || len(s.all) != 0 {
		t.Error("a line that is empty was not forgotten")
	}
	if head, _, _ := third.ahead(10); head != nil {
		t.Error("a caller of a line that was forgotten has a place in it")
	}
}

// OnWait may ask for the place of a caller that has left its line, the only one in it.
func TestCallerThatHasLeftItsLineHasNoPlaceInIt(t *testing.T) {
	t.Parallel()
	only := joined(new(lines), 1)
	only.next()
	if head, _, n := only.ahead(10); head != nil || n != 0 {
		t.Errorf("behind %v, and %d are ahead", head, n)
	}
}

func TestCallerWhoTriesJoinsNoLineWithACaller(t *testing.T) {
	t.Parallel()
	trying := func(entries string, n int64) *caller {
		c := numbered(entries, n)
		c.request.Try = true
		return c
	}
	s := new(lines)
	head := joined(s, 1)
	if s.join(trying("x", 2)) || !head.isLast() {
		t.Error("a caller has joined a line that was not empty")
	}
	alone := trying("x", 3)
	alone.alone = true
	if !s.join(alone) || !s.join(trying("y", 4)) || len(s.all) != 2 {
		t.Error("a caller has not joined a line that was empty")
	}
	if alone.next(); len(s.all) != 2 || s.length("x") != 1 {
		t.Error("a caller alone has ended another line")
	}
}

func TestCanceledCallersKeepTheOrderOfTheOthers(t *testing.T) {
	t.Parallel()
	head, behind := queueUp(7)
	for _, i := range []int{0, 3, 6, 3} { // caller 3 twice
		if !behind[i].cancel() {
			t.Errorf("caller %d had its turn", i)
		}
	}
	if head.cancel() {
		t.Error("the head was canceled")
	}
	var order []int64
	for !head.isLast() {
		order = append(order, head.takeFirst().rev)
	}
	if !slices.Equal(order, []int64{1, 2, 4, 5}) {
		t.Errorf("the others came in order %v", order)
	}
	if taken := head.takeFirst(); taken != nil {
		t.Errorf("an empty line gave %v", taken)
	}
}

// Canceled while its entry is being put, a caller gets no turn, and the next one does.
func TestCanceledCallersGetNoTurn(t *testing.T) {
	t.Parallel()
	head, behind := queueUp(2)
	taken := head.takeFirst()
	if !taken.cancel() || taken.passTurn() || hasTurn(taken) {
		t.Error("a caller that was canceled has its turn")
	}
	if taken.next(); !hasTurn(behind[1]) {
		t.Error("the one behind it has no turn")
	}
}

// The time per caller must not grow with the line: when a service shuts down, all are canceled at once.
func BenchmarkCancelAllCallersOfALine(b *testing.B) {
	for _, n := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				_, behind := queueUp(n)
				b.StartTimer()
				for i := range behind {
					behind[len(behind)-1-i].cancel()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/caller")
		})
	}
}

func TestLineCountsNoFurtherThanItIsAsked(t *testing.T) {
	t.Parallel()
	const most = 10
	head, behind := queueUp(most + 2)
	all := append([]*caller{head}, behind...)
	for i, want := range map[int]int{0: 0, 1: 1, 2: 2, most: most, most + 2: most} {
		if first, rev, got := all[i].ahead(most); got != want || first != head || rev != head.rev {
			t.Errorf("%d are ahead of the caller at %d, want %d; the head is %v, created at %d", got, i, want, first, rev)
		}
	}
}

func TestLineTellsItsLength(t *testing.T) {
	t.Parallel()
	s := new(lines)
	check := func(when string, want int) {
		t.Helper()
		if length := s.length("x"); length != want {
			t.Errorf("%s: %d are in it", when, length)
		}
	}
	check("there is none", 0)
	head := joined(s, 1)
	check("one has joined", 1)
	joined(s, 2)
	check("another waits", 2)
	head.next()
	check("the first has left", 1)
}
