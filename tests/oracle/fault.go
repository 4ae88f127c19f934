package oracle

import (
	"slices"
	"time"
)

// faultsOf returns the faults of a process, and perhaps of the cluster, in order of their beginnings.
func (j *judge) faultsOf(process string, andCluster bool) []Fault {
	key := faultsKey{process, andCluster}
	faults, known := j.faults[key]
	if !known {
		for _, f := range j.Faults {
			if f.Process == process || f.Process == Everywhere || andCluster && f.Process == "" {
				faults = append(faults, f)
			}
		}
		slices.SortStableFunc(faults, func(a, b Fault) int { return int(a.From - b.From) })
		j.faults[key] = faults
	}
	return faults
}

type faultsKey struct {
	process    string
	andCluster bool
}

// disturbed reports whether a process had a fault in an interval.
func (j *judge) disturbed(process string, from, to time.Duration) bool {
	return slices.ContainsFunc(j.faultsOf(process, false), func(f Fault) bool { return f.From < to && f.To > from })
}

// calmSince returns since when a process has had no fault at a time, but not more than since from.
func (j *judge) calmSince(process string, from, at time.Duration) time.Duration {
	for _, f := range j.faultsOf(process, false) {
		if f.From < at {
			from = max(from, f.To)
		}
	}
	return from
}

// calm returns the longest part of an interval in which neither a process nor the cluster had a fault, and the sum of
// all of them.
func (j *judge) calm(process string, from, to time.Duration) (longest, sum time.Duration) {
	for _, f := range append(slices.Clip(j.faultsOf(process, true)), Fault{From: to, To: to}) {
		if calm := min(f.From, to) - from; calm > 0 {
			longest, sum = max(longest, calm), sum+calm
		}
		from = max(from, f.To)
	}
	return longest, sum
}
