package main

import "testing"

func TestRatiosArePairedRoundByRound(t *testing.T) {
	// In the second round the machine was ten times slower for both sides.
	got := ratio(series{took: []float64{10, 200, 30}}, series{took: []float64{5, 100, 10}})
	if want := (spread{n: 3, median: 2, lowest: 2, highest: 3}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := spreadOf([]float64{4, 1, 3, 2}); got.median != 2.5 || got.lowest != 1 || got.highest != 4 {
		t.Errorf("%v", got)
	}
}
