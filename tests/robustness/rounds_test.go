package robustness

import "flag"

// full runs as many rounds as docs/guarantees.md claims, which takes minutes. CI sets it for some of the tests. A few
// rounds take seconds and detect most regressions.
var full = flag.Bool("full", false, "run as many rounds as docs/guarantees.md claims, as CI does for some tests")

// longRuns runs all rounds of the long tests before a release, which takes most of an
// hour.
var longRuns = flag.Bool("campaign", false, "run all rounds of the long tests, of which CI runs some")

// long returns the number of rounds of a long test: all with -campaign, some with
// -full, otherwise few.
func long(all, some, few int) int {
	if *longRuns {
		return all
	}
	return rounds(some, few)
}

// rounds returns the number of rounds of a test: all with -full, otherwise few.
func rounds(all, few int) int {
	if *full {
		return all
	}
	return few
}
