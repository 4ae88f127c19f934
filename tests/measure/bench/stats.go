package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// spread is the median of n values, and the interval in which it lies with a confidence of 95 %: from the smallest to
// the largest value if there are at most eight.
type spread struct {
	n         int
	median    float64
	low, high float64
}

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return spread{}
	}
	// How many of n values are below the median varies by half the square root of n.
	low := max(0, int(float64(n)/2-0.98*math.Sqrt(float64(n)))-1)
	return spread{n, (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[low], sorted[n-1-low]}
}

// ratio divides a by b round by round, so that a disturbance of a whole round cancels out. It skips rounds in which b
// is not positive.
func ratio(a, b series) spread {
	var all []float64
	for i := range min(len(a.took), len(b.took)) {
		if r := a.took[i] / b.took[i]; b.took[i] > 0 && !math.IsInf(r, 0) && !math.IsNaN(r) {
			all = append(all, r)
		}
	}
	return spreadOf(all)
}

// formatNumber formats a positive number with three digits.
func formatNumber(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2g", v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.01 || v == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

// units lists the units of time, largest first.
var units = []struct {
	name string
	of   time.Duration
}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}, {"ns", time.Nanosecond}}

// formatDurations formats a spread of nanoseconds, in the unit that suits its median.
func formatDurations(s spread) string {
	if s.n == 0 {
		return "–"
	}
	unit := units[len(units)-1]
	for _, u := range units {
		if s.median >= float64(u.of) {
			unit = u
			break
		}
	}
	in := func(v float64) string { return formatNumber(v / float64(unit.of)) }
	return fmt.Sprintf("%s %s (%s–%s)", in(s.median), unit.name, in(s.low), in(s.high))
}

// formatRatios formats a spread of ratios.
func formatRatios(s spread) string {
	if s.n == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", formatNumber(s.median), formatNumber(s.low), formatNumber(s.high))
}
