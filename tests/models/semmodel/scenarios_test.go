package semmodel

// one is an attempt in a session of its own.
func one(session int8) plan { return heavy(session, 1) }

func heavy(session, weight int8) plan { return plan{session: session, key: session, weight: weight} }

func (p plan) gives() plan        { p.givesUp = true; return p }
func (p plan) again() plan        { p.requeues = true; return p }
func (p plan) behind(i int8) plan { p.after = i + 1; return p }
func (p plan) at(key int8) plan   { p.key = key; return p }
func (p plan) try() plan          { p.tries = true; return p }
func (p plan) turn() plan         { p.queues = true; return p }

var (
	calm = scenario{
		name: "two permits, weights 1 2 1 1, one gives up", limit: 2,
		attempts: []plan{one(0), heavy(1, 2).gives(), one(2), one(3)},
	}
	queued = scenario{
		name: "one permit, sessions that know that others wait", limit: 1,
		attempts: []plan{one(0), one(1).turn().gives(), one(2).turn()},
		faults:   budget{loseReply: 1, delayCopy: 1, revoke: 1},
	}
	tried = scenario{
		name: "two permits, one tries, L1 revoked", limit: 2,
		attempts: []plan{one(0), heavy(1, 2).try().gives(), one(2)},
		faults:   budget{revoke: 1, loseReply: 1},
	}
	triedLate = scenario{
		name: "one permit, two try, L1 revoked, a copy is late", limit: 1,
		attempts: []plan{one(0), one(1).try(), one(2).try()},
		faults:   budget{revoke: 1, delayCopy: 1},
	}
	lowered = scenario{
		name: "two permits, then one, then three", limit: 2, resizes: []int8{1, 3},
		attempts: []plan{one(0), heavy(1, 2).gives(), one(2)},
	}
	newcomer = scenario{
		name: "one permit, then three, then two, with a newcomer", limit: 1, resizes: []int8{3, 2},
		attempts: []plan{one(0), one(1), one(2), one(3)},
	}
	limitLost = scenario{
		name: "one permit, then two, then one, a reply is lost, a copy is late", limit: 1, resizes: []int8{2, 1},
		attempts: []plan{one(0), one(1).gives(), one(2)}, faults: budget{loseReply: 1, delayCopy: 1},
	}
	limitLate = scenario{
		name: "two permits, then one, copies are late", limit: 2, resizes: []int8{1},
		attempts: []plan{one(0), one(1), one(2)}, faults: budget{delayCopy: 2},
	}
	light = scenario{
		name: "light ones behind a heavy one, a copy is late", limit: 2,
		attempts: []plan{heavy(0, 2), one(1).gives(), one(2).gives(), one(3)}, faults: budget{delayCopy: 1},
	}
	keysAgain = scenario{
		name: "light ones behind a heavy one, keys are used again, late", limit: 2,
		attempts: []plan{heavy(0, 2), one(1).gives(), one(1).behind(1), one(2)},
		faults:   budget{delayCopy: 1, loseReply: 1},
	}
	short = scenario{
		name: "one Txn marks one turn, L1 revoked", limit: 1, most: 1,
		attempts: []plan{one(0), one(1), one(2), one(3)}, faults: budget{revoke: 1},
	}
	lightRevoked = scenario{
		name: "light ones behind a heavy one, L1 revoked", limit: 2,
		attempts: []plan{heavy(0, 2), one(1), one(2).gives(), one(3)}, faults: budget{revoke: 1},
	}
	oneSession = scenario{
		name: "light ones of one session behind a heavy one, L1 revoked", limit: 2,
		attempts: []plan{heavy(0, 2), one(1), one(1).at(2), one(2).at(3)},
		faults:   budget{revoke: 1},
	}
	lightDeleted = scenario{
		name: "light ones behind a heavy one, a permit is deleted by hand", limit: 2,
		attempts: []plan{heavy(0, 2), one(1), one(2).gives(), one(3)}, faults: budget{deletePermit: 1},
	}
	revoked = scenario{
		name: "two permits, L1 revoked", limit: 2,
		attempts: []plan{one(0), one(1), one(2).gives(), one(3)}, faults: budget{revoke: 1},
	}
	weighted = scenario{
		name: "two permits, weights 1 2 1, L1 revoked twice, a reply is lost", limit: 2,
		attempts: []plan{one(0), heavy(1, 2).gives(), one(2)}, faults: budget{revoke: 2, loseReply: 1},
	}
	resizedRevoked = scenario{
		name: "one permit, then two, then one, L1 revoked twice", limit: 1, resizes: []int8{2, 1},
		attempts: []plan{one(0), one(1).gives(), one(2)}, faults: budget{revoke: 2},
	}
	twoLate = scenario{
		name: "one permit, keys are used again, L1 revoked, copies are late", limit: 1,
		attempts: []plan{one(0).gives(), one(0).behind(0), one(1)}, faults: budget{revoke: 1, delayCopy: 2},
	}
	lostLate = scenario{
		name: "one permit, keys are used again, L1 revoked, lost and late", limit: 1,
		attempts: []plan{one(0).gives(), one(0).behind(0), one(1)},
		faults:   budget{revoke: 1, delayCopy: 1, loseReply: 1},
	}
	three = scenario{
		name: "one permit, three sessions, L1 revoked, late", limit: 1,
		attempts: []plan{one(0), one(1).gives(), one(2)}, faults: budget{revoke: 1, delayCopy: 1},
	}
	back = scenario{
		name: "sessions come back", limit: 1, regrants: true,
		attempts: []plan{one(0).again(), one(1).again().gives(), one(2)}, faults: budget{revoke: 2},
	}
	backLate = scenario{
		name: "sessions come back, lost and late", limit: 1, regrants: true,
		attempts: []plan{one(0).again(), one(1).again()}, faults: budget{revoke: 2, delayCopy: 1, loseReply: 1},
	}
	byClock = scenario{
		name: "given up by the clock", limit: 1, regrants: true,
		attempts: []plan{one(0).again(), one(1).gives(), one(2)}, faults: budget{loseByClock: 1, revoke: 1},
	}
	dying = scenario{
		name: "two permits, processes die", limit: 2,
		attempts: []plan{one(0), one(1), heavy(2, 2)}, faults: budget{crash: 2, revoke: 1},
	}
	lightDying = scenario{
		name: "light ones behind a heavy one, processes die", limit: 2,
		attempts: []plan{heavy(0, 2), one(1), one(2), one(3)}, faults: budget{crash: 2},
	}
	deleted = scenario{
		name: "permits are deleted by hand, L1 revoked", limit: 1,
		attempts: []plan{one(0).again(), one(1).gives(), one(2)}, faults: budget{deletePermit: 2, revoke: 1},
	}
	deletedLost = scenario{
		name: "a permit is deleted by hand, lost and late", limit: 1,
		attempts: []plan{one(0).again(), one(0).behind(0), one(1)},
		faults:   budget{deletePermit: 1, delayCopy: 1, loseReply: 1},
	}
	deletedLate = scenario{
		name: "a permit is deleted by hand, copies are late", limit: 1,
		attempts: []plan{one(0).again().gives(), one(0).behind(0), one(1)},
		faults:   budget{deletePermit: 1, delayCopy: 2},
	}
	clearedLate = scenario{
		name: "a permit is deleted by hand, L1 revoked, copies are late", limit: 1,
		attempts: []plan{one(0).again().gives(), one(0).behind(0), one(1)},
		faults:   budget{deletePermit: 1, revoke: 1, delayCopy: 2},
	}
	turnDeleted = scenario{
		name: "turns are deleted by hand, L1 revoked", limit: 1,
		attempts: []plan{one(0).again(), one(1).again().gives(), one(2)}, faults: budget{deleteTurn: 2, revoke: 1},
	}
	turnDeletedLate = scenario{
		name: "a turn is deleted by hand, lost and late", limit: 1,
		attempts: []plan{one(0).again().gives(), one(0).behind(0), one(1)},
		faults:   budget{deleteTurn: 1, delayCopy: 1, loseReply: 1},
	}
	turnDeletedAhead = scenario{
		name: "a turn is deleted by hand, weights 1 2 1", limit: 2,
		attempts: []plan{one(0), heavy(1, 2).gives(), one(2)},
		faults:   budget{deleteTurn: 1, delayCopy: 1, revoke: 1},
	}
	keyDeleted = scenario{
		name: "a session key is deleted by hand, L1 revoked, late", limit: 1,
		attempts: []plan{one(0), one(1).gives(), one(2)}, faults: budget{deleteKey: 1, revoke: 1, delayCopy: 1},
	}
	claimsLost = scenario{
		name: "two permits, L2 is revoked alone", limit: 2,
		attempts: []plan{one(0), heavy(1, 2).gives(), one(2), one(3)}, faults: budget{revokeClaims: 2},
	}
	claimsLostLate = scenario{
		name: "one permit, L2 is revoked alone, lost and late", limit: 1,
		attempts: []plan{one(0), one(0).behind(0), one(1).gives()},
		faults:   budget{revokeClaims: 1, delayCopy: 1, loseReply: 1},
	}
	closing = scenario{
		name: "sessions are closed", limit: 1,
		attempts: []plan{one(0), one(1), one(2).gives()}, faults: budget{closeSession: 2},
	}
	closingRevoked = scenario{
		name: "sessions are closed, L1 revoked", limit: 1,
		attempts: []plan{one(0), one(1), one(2).gives()}, faults: budget{closeSession: 2, revoke: 1},
	}
	removed = scenario{
		name: "an administrator removes two, lost and late", limit: 1,
		attempts: []plan{one(0), one(1).gives(), one(2)}, faults: budget{remove: 2, delayCopy: 1, loseReply: 1},
	}
	removedLate = scenario{
		name: "an administrator removes one, a copy is late", limit: 1,
		attempts: []plan{one(0), one(1).gives(), one(2)}, faults: budget{remove: 1, delayCopy: 1},
	}
	removedBehind = scenario{
		name: "an administrator removes one behind a heavy one", limit: 2,
		attempts: []plan{heavy(0, 2), one(1), one(2), one(3)}, faults: budget{remove: 1},
	}

	// The race detector makes a search ten times slower and has nothing to find: one goroutine searches.
	underRace = []scenario{calm, lowered, closing, turnDeletedLate}
	small     = append(underRace, tried, triedLate, limitLate, light, keysAgain, short, lightDeleted,
		twoLate, lostLate, three, dying, lightDying, deletedLost, deletedLate, claimsLost, claimsLostLate,
		closingRevoked, removedLate, removedBehind)
	large = []scenario{queued, removed, newcomer, limitLost, lightRevoked, oneSession, revoked, weighted,
		resizedRevoked, back, backLate, byClock, deleted, turnDeleted, turnDeletedAhead, keyDeleted}

	broken = []scenario{
		breaking("a permit has no claim", weighted, "limit"),
		breaking("a dead claim does not count", weighted, "limit"),
		breaking("the claim is not marked with its turn", weighted, "limit"),
		breaking("the front does not count dead claims", weighted, "limit"),
		breaking("a marked turn does not count", calm, "limit"),
		breaking("there is no delay", weighted, "limit"),
		breaking("LockDelay is waited for also where the session key stands", deleted, "limit"),
		breaking("an admission does not compare the limit", lowered, "limit"),
		breaking("an admission marks turns by name", keysAgain, "order"),
		breaking("a claim is cleared by name", anyone(clearedLate), "limit"),
		breaking("an admission passes one that does not fit", calm, "order"),
		breaking("the front does not watch the limit", lowered, "missed"),
		breaking("the front does not watch permits", calm, "missed"),
		breaking(markIsNotWatched, calm, "missed"),
		breaking(markHolds, calm, "limit"),
		breaking("a put does not compare that no turn is unmarked", calm, "limit"),
		breaking("a put does not compare the claim", deletedLate, "limit"),
		breaking(noGate, twoLate, "stuck"),
		breaking("keys are used again while a put of them may come", twoLate, "stuck"),
		breaking("by position: a limit that was changed since", limitLost, "limit"),
		breaking("by position: dead claims ahead do not count", weighted, "limit"),
		breaking("a permit that is found holds", weighted, "limit"),
		breaking("a conversion brings no claim", weighted, "limit"),
		breaking("a release leaves the claim", calm, "needless"),
		breaking("a release deletes by name", twoLate, "limit"),
		breaking(claimStays, deleted, "stuck"),
		breaking("who gives up does not give back a mark", light, "stuck"),
		breaking("Close revokes L1 first", closing, "needless"),
		breaking(holdsByAnOldLook, deleted, "limit"),
		breaking("an administrator puts a turn that waits", removedBehind, "limit"),
		breaking(movedHolds, removed, "limit"),
		breaking("a front reads claims of turns that it does not read", short, "limit"),
	}

	two = []plan{one(0), one(1)}
	// Where too many may hold: docs/guarantees.md says so.
	exceptions = []scenario{
		{name: "L1 and L2 are revoked early", limit: 1, attempts: two, faults: budget{revoke: 1, revokeClaims: 1}},
		{name: "a permit is deleted by hand, and L2 is revoked", limit: 1, attempts: two,
			faults: budget{deletePermit: 1, revokeClaims: 1}},
		{name: "permit and session key are deleted by hand", limit: 1, attempts: two,
			faults: budget{deletePermit: 1, deleteKey: 1}},
	}
)

func breaking(r rule, s scenario, expect string) scenario {
	s.broken, s.expect, s.name = r, expect, string(r)+", in: "+s.name
	return s
}

func anyone(s scenario) scenario {
	s.anyone, s.name = true, s.name+", anyone admits and clears"
	return s
}
