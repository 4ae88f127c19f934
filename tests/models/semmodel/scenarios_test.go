package semmodel

func with(s scenario, changes ...func(*scenario)) scenario {
	for _, change := range changes {
		change(&s)
	}
	return s
}

func breaking(r rule, expect string) func(*scenario) {
	return func(s *scenario) { s.broken, s.expect, s.name = r, expect, string(r)+", in: "+s.name }
}

func permits(weights ...int8) (plans []plan) {
	for _, w := range weights {
		plans = append(plans, plan{weight: w})
	}
	return plans
}

func giveUp(plans []plan, who ...int) []plan {
	for _, i := range who {
		plans[i].givesUp = true
	}
	return plans
}

func revoking(n int8) func(*scenario) {
	return func(s *scenario) { s.revokes, s.name = n, s.name+", "+[]string{"none", "one", "two"}[n]+" revoked" }
}

var (
	three = scenario{
		name: "one permit, three attempts, two give up", limit: 1,
		attempts: giveUp(permits(1, 1, 1), 1, 2),
	}
	four = scenario{
		name: "two permits, four attempts, two give up", limit: 2,
		attempts: giveUp(permits(1, 1, 1, 1), 2, 3),
	}
	watchesFail = scenario{
		name: "two permits, four attempts, one gives up, watches fail", limit: 2,
		attempts: giveUp(permits(1, 1, 1, 1), 2), unknown: true, compacted: true,
	}
	crashing = scenario{
		name: "two permits, four attempts, one crashes, one gives up", limit: 2,
		attempts: giveUp(permits(1, 1, 1, 1), 2), crashes: 1,
	}
	weighted = scenario{
		name: "three permits, weights 2 1 3 1, two give up", limit: 3,
		attempts: giveUp(permits(2, 1, 3, 1), 1, 2),
	}
	heavyAhead = scenario{
		name: "two permits, weights 2 1 1 1, two give up", limit: 2,
		attempts: giveUp(permits(2, 1, 1, 1), 1, 2),
	}
	resized = scenario{
		name: "three permits, then two, then three", limit: 3, resizes: []int8{2, 3},
		attempts: permits(1, 1, 1, 1),
	}
	shrunk = scenario{
		name: "two permits, then one, one of weight two", limit: 2, resizes: []int8{1},
		attempts: permits(1, 2, 1, 1),
	}
	secondResize = scenario{
		name: "three permits, then one, then two, weights 2 1 1", limit: 3, resizes: []int8{1, 2},
		attempts: permits(2, 1, 1),
	}
	secondResizeOfFour = scenario{
		name: "three permits, then one, then two, weights 2 1 1 1, one gives up", limit: 3, resizes: []int8{1, 2},
		attempts: giveUp(permits(2, 1, 1, 1), 2),
	}
	lowered = scenario{
		name: "two permits, then one, one gives up, watches fail", limit: 2, resizes: []int8{1},
		attempts: giveUp(permits(1, 1, 1, 1), 2), unknown: true, compacted: true,
	}
	grown = scenario{
		name: "one permit, then two, then one, one gives up, lost replies", limit: 1, resizes: []int8{2, 1},
		attempts: giveUp(permits(1, 1, 1), 1), lossy: true,
	}
	requeued = scenario{
		name: "one permit, three attempts, new leases", limit: 1,
		attempts: permits(1, 1, 1), regrants: true,
	}
	lossy = scenario{
		name: "one permit, three attempts, two give up, lost replies, watches fail", limit: 1,
		attempts: giveUp(permits(1, 1, 1), 1, 2), lossy: true, unknown: true, compacted: true,
	}
	placeCompacted = scenario{
		name: "two permits, weights 2 1 1, lost replies, history is compacted", limit: 2,
		attempts: permits(2, 1, 1), lossy: true, compacted: true,
	}
	late = scenario{
		name: "one permit, two attempts, both give up, copies arrive late", limit: 1,
		attempts: giveUp(permits(1, 1), 0, 1), lossy: true, latePuts: true,
	}
	clean = scenario{
		name: "two permits, four attempts, one gives up, no fault", limit: 2,
		attempts: giveUp(permits(1, 1, 1, 1), 2), clean: true,
	}
	five = scenario{
		name: "two permits, five attempts, two give up", limit: 2,
		attempts: giveUp(permits(1, 1, 1, 1, 1), 2, 3),
	}
	fiveWeighted = scenario{
		name: "three permits, weights 2 1 2 1 3, two give up", limit: 3,
		attempts: giveUp(permits(2, 1, 2, 1, 3), 1, 2),
	}

	pair = scenario{
		name: "two permits, weights 1 1 2", limit: 2,
		attempts: permits(1, 1, 2),
	}
	heavyFirst = scenario{
		name: "two permits, weights 2 1 1, two give up", limit: 2,
		attempts: giveUp(permits(2, 1, 1), 1, 2),
	}

	small = []scenario{
		with(three, revoking(2)), with(four, revoking(1)), with(heavyAhead, revoking(1)), crashing, weighted,
		resized, shrunk, grown, secondResize, with(requeued, revoking(2)), with(lossy, revoking(1)),
		with(late, revoking(1)), with(placeCompacted, revoking(1)), clean,
	}
	// The race detector makes a search ten times slower and has nothing to find: one goroutine searches.
	underRace = []scenario{with(three, revoking(2)), shrunk, with(requeued, revoking(2)), clean}

	large = []scenario{
		with(four, revoking(2)), with(watchesFail, revoking(2)), with(weighted, revoking(2)),
		with(heavyAhead, revoking(2)), with(shrunk, revoking(1)), with(resized, revoking(1)),
		with(lowered, revoking(1)), with(grown, revoking(1)), secondResizeOfFour, with(secondResize, revoking(1)),
		five, fiveWeighted,
	}

	broken = []scenario{
		with(pair, breaking(marksNothing, "missed")),
		with(resized, breaking(limitOfNowExcludes, "missed")),
		with(pair, breaking(oneTooMany, "limit")),
		with(weighted, breaking(waitersArePassed, "order")),
		with(resized, breaking(limitIsNotCompared, "limit")),
		with(resized, breaking(limitIsNotWatched, "missed")),
		with(pair, revoking(1), breaking(nothingDelays, "early")),
		with(pair, revoking(1), breaking(onlyTheLastIsJudged, "early")),
		with(four, revoking(1), breaking(markSaysNow, "early")),
		with(pair, revoking(1), breaking(markBeforeDelay, "early")),
		with(heavyFirst, revoking(1), breaking(leaveSaysHeard, "early")),
		with(heavyFirst, revoking(1), breaking(delayIsWaitedFor, "early")),
		with(clean, breaking(leavesWithoutMark, "needless")),
		with(three, revoking(2), breaking(goneWithoutMarkIsClean, "early")),
		with(pair, revoking(1), breaking(firstByPosition, "early")),
		with(pair, revoking(1), breaking(markIsReadNow, "early")),
		with(watchesFail, revoking(1), breaking(compactedIsClean, "early")),
		with(requeued, revoking(2), breaking(requeuedWithoutDelay, "early")),
		with(placeCompacted, breaking(placedByWhatStandsNow, "missed")),
		with(secondResize, breaking(highIsThatOfTheLast, "missed")),
		with(shrunk, breaking(tooHeavyWaits, "missed")),
		with(grown, breaking(placedByLimitOfNow, "missed")),
	}
)
