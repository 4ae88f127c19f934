package queuemodel

// The scenarios. Attempts are for lock 0 unless they say otherwise; attempt i
// is of session i where the scenario is about several sessions.

func with(s scenario, changes ...func(*scenario)) scenario {
	s.attempts = append([]plan(nil), s.attempts...)
	for _, change := range changes {
		change(&s)
	}
	return s
}

func unknown(s *scenario)   { s.unknown, s.name = true, s.name+", unknown revision" }
func compacted(s *scenario) { s.compacted, s.name = true, s.name+", compacted" }
func latePut(s *scenario)   { s.latePuts, s.name = 1, s.name+", late put of a key" }

func breaking(r rule, expect string) func(*scenario) {
	return func(s *scenario) { s.broken, s.expect, s.name = r, expect, string(r)+", in: "+s.name }
}

var (
	three = scenario{
		name: "three in line, two revoked, all may give up", sessions: 3,
		attempts: []plan{{session: 0, givesUp: true}, {session: 1, givesUp: true}, {session: 2, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1, 2},
	}
	four = scenario{
		name: "four in line, two revoked, two may give up", sessions: 4,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2, givesUp: true}, {session: 3}},
		revokes:  2, revokable: []int8{0, 1, 2},
	}
	closing = scenario{
		name: "three in line, one revoked, two close", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{0, 1},
	}
	allClose = scenario{
		name: "three in line, two revoked, all may close, one may give up", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  2, revokable: []int8{0, 1}, closing: []int8{0, 1, 2},
	}
	closeHoldingAndWaiting = scenario{
		name: "a session closes that holds one lock and waits for another", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 1, lock: 1}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{1},
	}
	closeLine = scenario{
		name: "a session with a line closes or gives its lease up, one revoked", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, line: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{1}, giveUpLeases: 1,
	}
	closeUnanswered = scenario{
		name: "a session closes whose enqueue may go unanswered", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, slow: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{1}, lossy: true,
	}
	handingOn = scenario{
		name: "three in line, the second with another goroutine behind it, one revoked", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, line: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0},
	}
	handingOnTwice = scenario{
		name: "three with a line each, two revoked", sessions: 3,
		attempts: []plan{{session: 0, line: true}, {session: 1, line: true}, {session: 2, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1},
	}
	handingOnUnanswered = scenario{
		name: "a hand-off that may go unanswered, one revoked", sessions: 2,
		attempts: []plan{{session: 0, line: true, slow: true, givesUp: true}, {session: 1, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1}, copies: 2, lossy: true,
	}
	regranted = scenario{
		name: "two in line, both revoked, both get new leases", sessions: 2,
		attempts: []plan{{session: 0}, {session: 1}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{0, 1},
	}
	waiterRegranted = scenario{
		name: "two in line, both revoked, the second gets a new lease", sessions: 2,
		attempts: []plan{{session: 0}, {session: 1}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{1},
	}
	threeRegranted = scenario{
		name: "three in line, two revoked, the second gets a new lease", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 2}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{1},
	}
	lineRegranted = scenario{
		name: "three in line, two revoked, the second gets a new lease and has a line", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, line: true, givesUp: true}, {session: 2, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{1},
	}
	allRegranted = scenario{
		name: "three in line, three revoked, the second gets a new lease and may give up", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  3, revokable: []int8{0, 1, 2}, regrants: []int8{1},
	}
	givenUpForGood = scenario{
		name: "three in line, one revoked, two leases given up by their sessions' clocks", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1}, {session: 2, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1}, giveUpLeases: 2,
	}
	givenUp = scenario{
		name: "three in line, one revoked, one lease given up by its session's clock", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, giveUpLeases: 1, regrants: []int8{1},
	}
	keyDeleted = scenario{
		name: "three in line, a session key deleted by hand, one revoked", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, deleteKeys: 1,
	}
	keyDeletedUnanswered = scenario{
		name: "unanswered enqueues, a session key deleted by hand, one revoked", sessions: 2,
		attempts: []plan{{session: 0, slow: true, givesUp: true}, {session: 1}},
		revokes:  1, revokable: []int8{0}, deleteKeys: 1, copies: 2, lossy: true,
	}
	keyDeletedRegranted = scenario{
		name: "two in line, a session key deleted by hand, one revoked, new leases", sessions: 2,
		attempts: []plan{{session: 0}, {session: 1}},
		revokes:  1, revokable: []int8{0, 1}, deleteKeys: 1, regrants: []int8{0, 1},
	}
	keyDeletedSwept = scenario{
		name: "one session sweeps while its key is deleted by hand", sessions: 1,
		attempts:   []plan{{slow: true, givesUp: true}, {}},
		deleteKeys: 1, copies: 2, lossy: true,
	}
	swept = scenario{
		name: "unanswered enqueues of one session for two locks, another session behind", sessions: 2,
		attempts: []plan{{slow: true, givesUp: true}, {lock: 1, slow: true, givesUp: true}, {session: 1}},
		copies:   2, lossy: true,
	}
	sweptAlone = scenario{
		name: "unanswered enqueues of one session", sessions: 1,
		attempts: []plan{{slow: true, givesUp: true}, {lock: 1, slow: true}},
		copies:   2, lossy: true,
	}
	sweptTwoLost = scenario{
		name: "unanswered enqueues of a waiter, both revoked, the waiter gets a new lease", sessions: 2,
		attempts: []plan{{session: 0}, {session: 1, slow: true, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{1}, copies: 2, lossy: true,
	}
	sweptBehindRevoked = scenario{
		name: "unanswered enqueues between a holder that is revoked and a waiter", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, slow: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, copies: 2, lossy: true,
	}
	removed = scenario{
		name: "three in line, an administrator removes two holders, one revoked", sessions: 3,
		attempts: []plan{{session: 0, givesUp: true}, {session: 1, givesUp: true}, {session: 2, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1, 2}, removals: 2,
	}
	removedTwoLost = scenario{
		name: "three in line, an administrator removes a holder, two revoked, one closes", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2}},
		revokes:  2, revokable: []int8{0, 1}, removals: 1, closing: []int8{0, 1},
	}
	removedLine = scenario{
		name: "a line, an administrator removes a holder, one revoked", sessions: 2,
		attempts: []plan{{session: 0, line: true}, {session: 1, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1}, removals: 1, regrants: []int8{0},
	}
	removedLineTwice = scenario{
		name: "a line, an administrator removes two holders, one revoked, one given up", sessions: 2,
		attempts: []plan{{session: 0, line: true, givesUp: true}, {session: 1, givesUp: true}},
		revokes:  1, revokable: []int8{0, 1}, removals: 2, giveUpLeases: 1, regrants: []int8{0},
	}
	removedUnanswered = scenario{
		name: "unanswered enqueues, an administrator removes a holder", sessions: 2,
		attempts: []plan{{session: 0, slow: true, givesUp: true}, {session: 1, slow: true, givesUp: true}},
		removals: 1, copies: 2, lossy: true, revokes: 1, revokable: []int8{0},
	}
	alwaysSwept = scenario{
		name: "slow enqueues of one session, always a suspect", sessions: 1,
		attempts: []plan{{slow: true}, {lock: 1, slow: true}},
		copies:   2, alwaysSuspects: true,
	}
	readers = scenario{
		name: "two readers and a writer behind them, both revoked, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, shared: true, givesUp: true}, {session: 1, shared: true, givesUp: true}, {session: 2, givesUp: true},
		},
		revokes: 2, revokable: []int8{0, 1, 2},
	}
	readersRemoved = scenario{
		name: "two readers and a writer, an administrator removes a holder, two revoked", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true, givesUp: true}, {session: 2, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1}, removals: 1,
	}
	readersMinHold = scenario{
		name: "a writer with MinHold and two readers behind it, two revoked", sessions: 3,
		attempts: []plan{{session: 0, minHold: true}, {session: 1, shared: true, givesUp: true}, {session: 2, shared: true}},
		revokes:  2, revokable: []int8{0, 1},
	}
	writerLeavesReaders = scenario{
		name: "a writer that is revoked, a reader, a writer that gives up, a reader", sessions: 4,
		attempts: []plan{{session: 0}, {session: 1, shared: true}, {session: 2, givesUp: true}, {session: 3, shared: true}},
		revokes:  1, revokable: []int8{0},
	}
	readersBetween = scenario{
		name: "two writers and two readers, two revoked, one reader may give up", sessions: 4,
		attempts: []plan{{session: 0}, {session: 1, shared: true, givesUp: true}, {session: 2, shared: true}, {session: 3}},
		revokes:  2, revokable: []int8{0, 1, 2},
	}
	writersAmongReaders = scenario{
		name: "three readers and a writer that may give up, two revoked", sessions: 4,
		attempts: []plan{
			{session: 0, shared: true}, {session: 1, givesUp: true}, {session: 2, shared: true}, {session: 3, shared: true},
		},
		revokes: 2, revokable: []int8{0, 1},
	}
	readersClose = scenario{
		name: "two readers and a writer, one revoked, all may close", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true}, {session: 2}},
		revokes:  1, revokable: []int8{0, 1}, closing: []int8{0, 1, 2},
	}
	readersOfOneSession = scenario{
		name: "a session with two readers and another with a writer, both revoked and granted again", sessions: 2,
		attempts: []plan{{session: 0, shared: true}, {session: 1}, {session: 0, shared: true, givesUp: true}},
		revokes:  2, revokable: []int8{0, 1}, regrants: []int8{0, 1},
	}
	writerLine = scenario{
		name: "two readers, and a writer with another goroutine behind it, one revoked", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true}, {session: 2, line: true, givesUp: true}},
		revokes:  1, revokable: []int8{0},
	}
	writerLineGivesUp = scenario{
		name: "two readers, and a line of writers whose session gives its lease up, one revoked", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true}, {session: 2, line: true, givesUp: true}},
		revokes:  1, revokable: []int8{0}, giveUpLeases: 1,
	}
	readersUnanswered = scenario{
		name: "unanswered enqueues of a writer behind two readers, one revoked", sessions: 3,
		attempts: []plan{{session: 0, shared: true}, {session: 1, shared: true}, {session: 2, slow: true, givesUp: true}},
		revokes:  1, revokable: []int8{0}, copies: 2, lossy: true,
	}
	readerUnanswered = scenario{
		name: "unanswered enqueues of a reader between a writer that is revoked and a writer", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, shared: true, slow: true, givesUp: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, copies: 2, lossy: true,
	}
	readersClean = scenario{
		name: "no fault: readers and writers, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, shared: true, givesUp: true}, {session: 1, shared: true, givesUp: true}, {session: 2, givesUp: true},
			{session: 2, lock: 0, shared: true},
		},
		clean: true,
	}
	minHold = scenario{
		name: "three in line with MinHold, one revoked, all may give up", sessions: 3,
		attempts: []plan{
			{session: 0, minHold: true, givesUp: true}, {session: 1, minHold: true, givesUp: true},
			{session: 2, givesUp: true},
		},
		revokes: 1, revokable: []int8{0, 1},
	}
	minHoldClosing = scenario{
		name: "two in line with MinHold, the first revoked or closed", sessions: 3,
		attempts: []plan{{session: 0, minHold: true}, {session: 1, minHold: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{0},
	}
	minHoldGivenUp = scenario{
		name: "two in line with MinHold, both may close or give their leases up", sessions: 3,
		attempts: []plan{{session: 0, minHold: true}, {session: 1, minHold: true}, {session: 2}},
		revokes:  1, revokable: []int8{0}, closing: []int8{0, 1}, giveUpLeases: 1, regrants: []int8{0},
	}
	minHoldLine = scenario{
		name: "two in line with MinHold, the first with another goroutine behind it, one revoked", sessions: 2,
		attempts: []plan{{session: 0, minHold: true, line: true}, {session: 1, minHold: true}},
		revokes:  1, revokable: []int8{0, 1}, closing: []int8{0},
	}
	minHoldUnanswered = scenario{
		name: "unanswered enqueues with MinHold, one revoked", sessions: 2,
		attempts: []plan{{session: 0, minHold: true, slow: true, givesUp: true}, {session: 1}},
		revokes:  1, revokable: []int8{0}, copies: 2, lossy: true,
	}
	cleanMinHold = scenario{
		name: "no fault: MinHold, with a line", sessions: 3,
		attempts: []plan{{session: 0, minHold: true, line: true}, {session: 1, minHold: true, givesUp: true}, {session: 2}},
		clean:    true,
	}
	clean = scenario{
		name: "no fault: three in line, all may give up, two close", sessions: 3,
		attempts: []plan{{session: 0, givesUp: true}, {session: 1, givesUp: true}, {session: 2, givesUp: true}},
		closing:  []int8{0, 1}, clean: true,
	}
	cleanLine = scenario{
		name: "no fault: lines", sessions: 3,
		attempts: []plan{{session: 0, line: true}, {session: 1, line: true, givesUp: true}, {session: 2, givesUp: true}},
		clean:    true,
	}
	cleanFour = scenario{
		name: "no fault: four in line, three may give up, no close", sessions: 4,
		attempts: []plan{
			{session: 0, givesUp: true}, {session: 1, givesUp: true}, {session: 2, givesUp: true}, {session: 3},
		},
		clean: true,
	}
	cleanRemoved = scenario{
		name: "no fault: an administrator removes two holders", sessions: 3,
		attempts: []plan{{session: 0}, {session: 1, givesUp: true}, {session: 2, givesUp: true}},
		removals: 2, clean: true,
	}
	cleanUnanswered = scenario{
		name: "no fault but silence: unanswered enqueues are swept without delaying those behind", sessions: 2,
		attempts: []plan{{slow: true, givesUp: true}, {session: 1}},
		copies:   2, lossy: true, clean: true,
	}
)

// small are searched in each run of the tests.
var small = []scenario{
	three, with(three, unknown), with(three, unknown, compacted),
	closing, with(closing, unknown, compacted),
	handingOn, with(handingOn, unknown), handingOnTwice,
	regranted, with(threeRegranted, unknown),
	givenUp, with(givenUpForGood, unknown),
	keyDeleted, with(keyDeletedUnanswered), with(keyDeletedRegranted, unknown),
	keyDeletedSwept, with(keyDeletedSwept, latePut),
	sweptAlone, with(sweptAlone, latePut), alwaysSwept, sweptTwoLost,
	with(alwaysSwept, func(s *scenario) { s.lossy, s.name = true, s.name+", losses" }),
	readers, with(readers, unknown), with(readers, unknown, compacted), readersClose, writerLine,
	readersClean, writerLeavesReaders, readersRemoved, readersMinHold,
	clean, cleanLine, with(cleanFour, unknown), cleanUnanswered,
	minHold, with(minHold, unknown), minHoldClosing, minHoldLine, with(minHoldLine, unknown, compacted),
	minHoldUnanswered, cleanMinHold,
	removed, removedLine, removedUnanswered, cleanRemoved,
}

// large are searched with -model.full only.
var large = []scenario{
	handingOnUnanswered, readersOfOneSession, with(removedTwoLost, unknown),
	four, with(four, unknown, compacted),
	with(allClose, unknown, compacted), closeHoldingAndWaiting, with(closeLine, unknown, compacted),
	with(closeUnanswered, unknown),
	with(handingOnTwice, unknown, compacted), with(handingOnUnanswered, unknown),
	lineRegranted, with(lineRegranted, unknown, compacted), with(allRegranted, unknown, compacted),
	with(givenUp, unknown, compacted),
	with(keyDeleted, unknown, latePut),
	swept, with(sweptBehindRevoked, unknown),
	readersBetween, with(readersBetween, unknown, compacted), writersAmongReaders,
	with(writersAmongReaders, unknown, compacted), with(readersClose, unknown, compacted),
	with(readersOfOneSession, unknown), with(writerLine, unknown, compacted),
	writerLineGivesUp,
	readersUnanswered, with(readersUnanswered, unknown), readerUnanswered, with(readerUnanswered, unknown),
	minHoldGivenUp,
	removedLineTwice, with(removed, unknown, compacted),
}

const (
	early    = "early"
	orphan   = "orphan"
	needless = "needless"
	livelock = "livelock"
	freed    = "kept"
)

// broken are the rules broken on purpose. The search has to notice each.
var broken = []scenario{
	with(three, breaking(nothingDelays, early)),
	with(three, breaking(nearestIsReadNow, early)),
	with(clean, breaking(keyIsReadNow, needless)),
	with(keyDeleted, breaking(keyMustGoWithEntry, early)),
	with(three, unknown, breaking(unknownAsksPredecessorOnly, early)),
	with(three, compacted, breaking(compactedAsksPredecessorNow, early)),
	with(three, breaking(removeAtOnce, early)),
	with(three, breaking(removeInDelay, early)),
	with(three, breaking(removeByAnEarlierRead, early)),
	with(four, breaking(removeAfterDelay, early)),
	with(closing, breaking(closeRemovesAtOnce, early)),
	with(closing, breaking(closeDeletesKeyFirst, early)),
	with(handingOn, breaking(placeWithoutDelay, early)),
	with(handingOn, breaking(handOffAtOnce, early)),
	with(waiterRegranted, breaking(requeuedWithoutDelay, early)),
	with(waiterRegranted, breaking(requeuedDelaysFromGrant, early)),
	with(threeRegranted, breaking(requeuedDelaysOnlyBehind, early)),
	with(sweptBehindRevoked, breaking(foundReadsNow, early)),
	with(sweptAlone, breaking(foundIsAnswered, orphan)),
	with(sweptAlone, breaking(gateIsNotCompared, orphan)),
	with(keyDeletedSwept, breaking(missingKeyPasses, orphan)),
	with(sweptAlone, breaking(nothingIsSwept, orphan)),
	with(sweptAlone, breaking(newGateSettles, orphan)),
	with(sweptAlone, breaking(sweepWithoutPut, orphan)),
	with(sweptBehindRevoked, breaking(sweepAtOnce, early)),
	with(sweptBehindRevoked, breaking(endPutsTheKey, early)),
	with(alwaysSwept, breaking(putAtAnyTime, livelock)),
	with(readers, breaking(readersAreNotRemembered, early)),
	with(writerLine, breaking(handOffForgetsReaders, early)),
	with(writerLeavesReaders, breaking(writersAreNotRemembered, early)),
	with(readersUnanswered, breaking(readersAreReadNow, early)),
	with(minHold, breaking(movedBeforeToldAboutIt, early)),
	with(minHold, breaking(unansweredLeaseIsRevoked, freed)),
	with(minHoldClosing, breaking(closeDeletesKept, freed)),
	with(minHoldUnanswered, breaking(keptIsSwept, freed)),
	with(minHoldLine, breaking(keptKeyIsUsedAgain, freed)),
	with(cleanMinHold, breaking(delayByTheLeaseOfTheEntry, needless)),
	with(removed, breaking(removalDeletes, early)),
	with(removed, breaking(waiterIsMoved, early)),
	with(removed, breaking(moveIsTheNotice, early)),
	with(removed, breaking(moveWithoutDelay, early)),
}
