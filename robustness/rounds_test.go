package robustness

import "flag"

// full asks for as many rounds as the documents claim. CI does; a run of the
// whole suite makes do with a few, which find a broken guard almost as surely
// and cost seconds instead of minutes.
var full = flag.Bool("full", false, "as many rounds as docs/guarantees.md claims, as CI runs them")

// rounds is how many rounds to run: all of them with -full, otherwise few.
func rounds(all, few int) int {
	if *full {
		return all
	}
	return few
}
