// Package rounds says how many rounds a test makes: few in README's commands, more with -full and -campaign.
package rounds

import "flag"

var (
	full = flag.Bool("full", false, "run as many rounds as docs/guarantees.md claims, which takes minutes")

	campaign = flag.Bool("campaign", false, "run all rounds of the long tests, which takes most of an hour")
)

// Of returns the number of rounds of a test: all with -full, otherwise few, which detect most regressions.
func Of(all, few int) int {
	if *full {
		return all
	}
	return few
}

// Long returns the number of rounds of a long test: all with -campaign, some with -full, otherwise few.
func Long(all, some, few int) int {
	if *campaign {
		return all
	}
	return Of(some, few)
}

// Full reports whether tests make as many rounds as docs/guarantees.md claims.
func Full() bool { return *full }

// Campaign reports whether all rounds of the long tests run.
func Campaign() bool { return *campaign }
