package main

import "testing"

func TestRatiosArePairedRoundByRound(t *testing.T) {
	// In the second round the machine was ten times slower for both sides.
	got := ratio(series{took: []float64{10, 200, 30}}, series{took: []float64{5, 100, 10}})
	if want := (spread{n: 3, median: 2, low: 2, high: 3}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := spreadOf([]float64{4, 1, 3, 2}); got.median != 2.5 || got.low != 1 || got.high != 4 {
		t.Errorf("%v", got)
	}
}

// Of a hundred values drawn from any distribution, the median is between the 40th and the 61st in 95 cases of 100.
func TestMedianOfManyRoundsHasAnInterval(t *testing.T) {
	for n, want := range map[int]spread{
		5:   {n: 5, median: 3, low: 1, high: 5},
		100: {n: 100, median: 50.5, low: 40, high: 61},
		200: {n: 200, median: 100.5, low: 86, high: 115},
	} {
		var values []float64
		for i := range n {
			values = append(values, float64((i*7)%n+1))
		}
		if got := spreadOf(values); got != want {
			t.Errorf("of %d values: %v, want %v", n, got, want)
		}
	}
}
