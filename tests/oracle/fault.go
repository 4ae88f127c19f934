package oracle

import (
	"slices"
	"time"
)

// What a rule takes for a fault.
const (
	own        = iota // of the process
	andCluster        // and of the cluster
	andSick           // and of a minority of its members
)

// faultsOf returns the faults of a process, and perhaps of the cluster, in order of their beginnings.
func (j *judge) faultsOf(process string, which int) []Fault {
	key := faultsKey{process, which}
	faults, known := j.faults[key]
	if !known {
		for _, f := range j.Faults {
			if f.Process == process || f.Process == Everywhere || which >= andCluster && f.Process == "" {
				faults = append(faults, f)
			}
		}
		if which == andSick {
			faults = append(faults, j.Sick...)
		}
		slices.SortStableFunc(faults, func(a, b Fault) int { return int(a.From - b.From) })
		j.faults[key] = faults
	}
	return faults
}

type faultsKey struct {
	process string
	which   int
}

// disturbed reports whether a process had a fault in an interval that may keep it from being told before another holds.
func (j *judge) disturbed(process string, from, to time.Duration) bool {
	return slices.ContainsFunc(j.faultsOf(process, own), func(f Fault) bool {
		return f.From < to && f.To > from && !f.NoQuorum
	})
}

// calmSince returns since when a process has had no fault at a time, but not more than since from.
func (j *judge) calmSince(process string, from, at time.Duration) time.Duration {
	for _, f := range j.faultsOf(process, own) {
		if f.From < at {
			from = max(from, f.To)
		}
	}
	return from
}

// calm returns the longest part of an interval in which neither a process nor the cluster had a fault, and the sum of
// all of them.
func (j *judge) calm(process string, which int, from, to time.Duration) (longest, sum time.Duration) {
	for _, f := range append(slices.Clip(j.faultsOf(process, which)), Fault{From: to, To: to}) {
		if calm := min(f.From, to) - from; calm > 0 {
			longest, sum = max(longest, calm), sum+calm
		}
		from = max(from, f.To)
	}
	return longest, sum
}
