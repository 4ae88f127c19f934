package oracle

import (
	"testing"
	"time"
)

func TestStatsOfSeveralRecordsAreAdded(t *testing.T) {
	a, b := NewStats(), NewStats()
	a.count("x")
	b.count("x")
	b.count("y")
	a.most("late", time.Second)
	b.most("late", 2*time.Second)
	a.least("early", time.Second)
	b.least("early", 2*time.Second)
	a.Add(b)
	want := "       2 x\n       1 y\n      1s early, at least\n      2s late, at most\n"
	if got := a.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
