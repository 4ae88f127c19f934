package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// spread is the median of a few values, and the smallest and the largest. The
// zero spread is that of no values.
type spread struct {
	n               int
	median          float64
	lowest, highest float64
}

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return spread{}
	}
	return spread{n, (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// ratio is a over b round by round, so that what disturbed both in a round
// cancels out. Rounds in which b is not positive say nothing.
func ratio(a, b series) spread {
	var all []float64
	for i := range min(len(a.took), len(b.took)) {
		if r := a.took[i] / b.took[i]; b.took[i] > 0 && !math.IsInf(r, 0) && !math.IsNaN(r) {
			all = append(all, r)
		}
	}
	return spreadOf(all)
}

// figure is a positive number in three digits.
func figure(v float64) string {
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

// units of time, the largest first.
var units = []struct {
	name string
	of   time.Duration
}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}, {"ns", time.Nanosecond}}

// durations is a spread of nanoseconds in the unit of its median.
func durations(s spread) string {
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
	in := func(v float64) string { return figure(v / float64(unit.of)) }
	return fmt.Sprintf("%s %s (%s–%s)", in(s.median), unit.name, in(s.lowest), in(s.highest))
}

// times is a spread of ratios.
func times(s spread) string {
	if s.n == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.median), figure(s.lowest), figure(s.highest))
}
