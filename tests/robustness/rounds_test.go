package robustness

import "flag"

// full asks for as many rounds as the documents claim. CI does; a run of the
// whole suite makes do with a few, which find a broken guard almost as surely
// and cost seconds instead of minutes.
var full = flag.Bool("full", false, "as many rounds as docs/guarantees.md claims, as CI runs them")

// longRuns asks for the long runs by which a release is judged, most of an hour.
var longRuns = flag.Bool("campaign", false, "all rounds of the long runs; CI makes some of them")

// long is how many rounds of a long run to make: all of them with -campaign, some
// with -full, otherwise few.
func long(all, some, few int) int {
	if *longRuns {
		return all
	}
	return rounds(some, few)
}

// rounds is how many rounds to run: all of them with -full, otherwise few.
func rounds(all, few int) int {
	if *full {
		return all
	}
	return few
}
