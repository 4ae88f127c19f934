package queuemodel

func writer(session, key int8) plan { return set(session, member{key, 0, true}) }
func reader(session, key int8) plan { return set(session, member{key, 0, false}) }

// set is a Set, a tree lock or a lock that can be downgraded.
func set(session int8, entries ...member) plan { return plan{session: session, entries: entries} }

func (p plan) gives() plan         { p.givesUp = true; return p }
func (p plan) requeues() plan      { p.again = true; return p }
func (p plan) behind(i int8) plan  { p.after = i + 1; return p }
func (p plan) handsTo(i int8) plan { p.next = i + 1; return p }
func (p plan) tries() plan         { p.try = true; return p }
func (p plan) keepsName() plan     { p.minHold = true; return p }
func (p plan) downgrades() plan    { p.downs = true; return p }
func (p plan) withoutDelay() plan  { p.hasty = true; return p }
func (p plan) ofEtcdsClient() plan { p.foreign = true; return p }

// The scenarios. A session has one attempt at a name, unless a plan says that it comes behind another one.

func named(name string, faults budget, attempts ...plan) scenario {
	return scenario{name: name, faults: faults, attempts: attempts}
}

func with(s scenario, changes ...func(*scenario)) scenario {
	for _, change := range changes {
		change(&s)
	}
	return s
}

func regrants(s *scenario) { s.regrants = true }

func closing(sessions ...int8) func(*scenario) {
	return func(s *scenario) { s.closing = sessions }
}

// Sets: the same two queues, in either order.
var (
	ab = []member{{0, 0, true}, {1, 1, true}}
	ba = []member{{2, 1, true}, {3, 0, true}}
)

var (
	calm = named("calm", budget{},
		writer(0, 0), writer(1, 1).gives(), reader(2, 2), reader(0, 3))
	calmClose = with(named("calm: Close", budget{closes: 2},
		writer(0, 0), writer(1, 1), reader(2, 2).gives()), closing(0, 1))
	calmLate = named("calm: requests lost and late", budget{lost: 1, late: 2},
		writer(0, 0), writer(0, 0).behind(0), writer(1, 1).gives())
	calmLines = named("calm: lines", budget{lost: 1, late: 1},
		writer(0, 0).gives().handsTo(1), writer(0, 1), writer(1, 2).gives())
	calmRemoval = named("calm: an entry is removed", budget{removals: 1, late: 1},
		writer(0, 0).requeues(), writer(1, 1).gives(), writer(2, 2))
	calmDowngrade = named("calm: downgrade", budget{late: 1},
		set(0, member{0, 0, true}, member{1, 0, false}).downgrades(), reader(1, 2), writer(2, 3))
	calmMinHold = named("calm: MinHold", budget{late: 1},
		writer(0, 0).keepsName(), writer(1, 1), writer(2, 2))

	revoked = named("L1 is revoked", budget{revokes: 2},
		writer(0, 0), writer(1, 1).gives(), writer(2, 2))
	revokedFour = named("L1 is revoked, four writers", budget{revokes: 1},
		writer(0, 0), writer(1, 1).gives(), writer(2, 2), writer(1, 3))
	revokedReaders = named("L1 is revoked, two readers and two others", budget{revokes: 2},
		reader(0, 0), reader(1, 1).gives(), writer(2, 2), reader(2, 3))
	revokedWriters = named("L1 is revoked, two writers and two readers", budget{revokes: 2},
		writer(0, 0), writer(1, 1).gives(), reader(2, 2), reader(1, 3))
	revokedLost = named("L1 is revoked, requests lost and late", budget{revokes: 1, lost: 1, late: 1},
		writer(0, 0), writer(0, 0).behind(0), writer(1, 1).gives())
	revokedLate = named("L1 is revoked, two requests late", budget{revokes: 1, late: 2},
		writer(0, 0).gives(), writer(0, 0).behind(0), writer(1, 1))
	revokedBack = with(named("L1 is revoked, sessions come back", budget{revokes: 2},
		writer(0, 0).requeues(), writer(1, 1).requeues().gives(), writer(2, 2)), regrants)
	revokedBackLate = with(named("L1 is revoked, sessions come back, late", budget{revokes: 2, late: 1, lost: 1},
		writer(0, 0).requeues(), writer(1, 1).requeues()), regrants)
	revokedTry = named("L1 is revoked, TryLock", budget{revokes: 2, lost: 1},
		writer(0, 0), writer(1, 1).tries(), writer(2, 2).tries().gives())
	revokedLines = named("L1 is revoked, lines", budget{revokes: 1, lost: 1},
		writer(0, 0).gives().handsTo(1), writer(0, 1), writer(1, 2).gives(), writer(2, 3))
	revokedClose = with(named("L1 is revoked, Close", budget{revokes: 1, closes: 2},
		writer(0, 0), writer(1, 1), writer(2, 2).gives()), closing(0, 1))
	revokedMinHold = with(named("L1 is revoked, MinHold", budget{revokes: 1, late: 1, closes: 1},
		writer(0, 0).keepsName(), writer(1, 1).gives(), writer(2, 2)), closing(0))
	revokedSets = named("L1 is revoked, sets", budget{revokes: 2},
		set(0, ab...), set(1, ba...).gives(), writer(2, 4))
	revokedCircle = named("L1 is revoked, three sets in a circle", budget{revokes: 2},
		set(0, ab...), set(1, member{2, 1, true}, member{3, 2, true}).gives(), set(2, member{4, 2, true}, member{5, 0, true}))
	revokedDowngrade = named("L1 is revoked, downgrade", budget{revokes: 2},
		set(0, member{0, 0, true}, member{1, 0, false}).downgrades(),
		set(1, member{2, 0, true}, member{3, 0, false}).gives(), reader(2, 4))
	revokedAgain = named("L1 is revoked, calls with a deadline", budget{revokes: 1, deletes: 1},
		writer(0, 0), writer(1, 1).gives(), writer(1, 1).behind(1).gives(), writer(2, 2))

	tryLate = named("TryLock beside Lock, requests lost and late", budget{revokes: 1, late: 1, lost: 1},
		writer(0, 0).tries(), writer(0, 0).behind(0), writer(1, 1).tries())
	givenUp = with(named("given up by the clock", budget{clocks: 1, revokes: 1},
		writer(0, 0).requeues(), writer(1, 1).gives(), writer(2, 2)), regrants)
	crashes = named("processes die", budget{crashes: 2, revokes: 1},
		writer(0, 0), writer(1, 1), reader(2, 2), writer(2, 3).gives())
	revokedL2 = named("L2 is revoked", budget{revokesL2: 2, late: 1},
		writer(0, 0), writer(1, 1).gives(), reader(2, 2), writer(2, 3))

	deletedOnce = named("an entry is deleted once", budget{deletes: 1},
		writer(0, 0).requeues(), writer(1, 1))
	deleted = named("entries are deleted", budget{deletes: 2, revokes: 1},
		writer(0, 0).requeues(), writer(1, 1).gives(), writer(2, 2))
	deletedLost = named("an entry is deleted, requests lost and late", budget{deletes: 1, lost: 1, late: 1},
		writer(0, 0).requeues(), writer(0, 0).behind(0), writer(1, 1))
	deletedLate = named("an entry is deleted, two requests late", budget{deletes: 1, late: 2},
		writer(0, 0).requeues().gives(), writer(0, 0).behind(0), writer(1, 1))
	deletedReused = named("an entry is deleted, its key is used again", budget{deletes: 1, late: 1, revokes: 1},
		writer(0, 0), writer(1, 1), writer(0, 0).behind(0), writer(2, 2))
	deletedTwice = named("entries are deleted, one after the other at a key", budget{deletes: 2},
		writer(0, 0), writer(0, 0).behind(0), writer(1, 1).gives(), writer(1, 1).behind(2))
	deletedReaders = named("a reader's and a writer's entry are deleted", budget{deletes: 2, revokes: 1, lost: 1},
		reader(0, 0), writer(1, 1), reader(2, 2))
	deletedLines = named("an entry is deleted, lines", budget{deletes: 1, revokes: 1, late: 1},
		writer(0, 0).gives().handsTo(1), writer(0, 1), writer(1, 2))
	deletedSets = named("an entry is deleted, sets of readers and writers", budget{deletes: 1, revokes: 1},
		set(0, member{0, 0, false}, member{1, 1, true}).requeues(),
		set(1, member{2, 1, false}, member{3, 0, true}).gives(), writer(2, 4))
	deletedSetsLate = named("an entry is deleted, sets, late", budget{deletes: 1, revokes: 1, lost: 1, late: 1},
		set(0, ab...).gives(), set(1, ba...))
	deletedDowngrade = named("an entry is deleted, downgrade", budget{deletes: 1, revokes: 1, late: 1},
		set(0, member{0, 0, true}, member{1, 0, false}).downgrades(),
		set(0, member{0, 0, true}, member{1, 0, false}).downgrades().behind(0), reader(2, 2))
	keyDeleted = named("a session key is deleted", budget{keysDeleted: 1, revokes: 1, late: 1},
		writer(0, 0), writer(1, 1).gives(), writer(2, 2))
	bothDeleted = with(named("an entry and its session key are deleted", budget{deletes: 1, keysDeleted: 1},
		writer(0, 0), writer(1, 1), writer(2, 2)), func(s *scenario) { s.prompt = true })
	linesReused = named("lines, a key is used again, late", budget{late: 1, lost: 1},
		writer(0, 0).gives().handsTo(1), writer(0, 1), writer(0, 0).behind(0))

	removed = named("entries are removed while others wait or delay", budget{removals: 2, revokes: 1},
		writer(0, 0), writer(1, 1).requeues(), writer(2, 2).gives())
	removedLate = named("entries are removed, requests lost and late", budget{removals: 1, revokes: 1, lost: 1, late: 1},
		writer(0, 0), writer(1, 1).requeues(), writer(2, 2))
	removedReaders = named("entries are removed, readers", budget{removals: 2, revokes: 1},
		reader(0, 0), reader(1, 1), writer(2, 2).requeues())
	removedSets = named("entries are removed, sets", budget{removals: 1, revokes: 1},
		set(0, ab...), set(1, ba...).requeues(), writer(2, 4))
	removedMinHold = named("entries are removed, MinHold", budget{removals: 2, notices: 1},
		writer(0, 0).keepsName(), writer(1, 1).requeues(), writer(2, 2))
	noticed = named("entries are asked to let go", budget{notices: 2, revokes: 1},
		writer(0, 0), writer(1, 1).requeues(), writer(2, 2).gives())

	removedBack = with(named("entries are removed, sessions come back", budget{removals: 1, revokes: 1},
		writer(0, 0).requeues(), writer(1, 1).requeues(), writer(2, 2).gives()), regrants)
	removedClose = with(named("entries are removed, Close", budget{removals: 1, revokes: 1, closes: 1},
		writer(0, 0), writer(1, 1).requeues(), reader(2, 2)), closing(0, 1))
	removedTry = named("entries are removed, TryLock", budget{removals: 1, revokes: 1, deletes: 1},
		writer(0, 0), writer(1, 1).tries().gives(), writer(1, 1).behind(1).tries(), writer(2, 2))
	removedDowngrade = named("entries are removed, downgrade", budget{removals: 1, revokes: 1, deletes: 1},
		set(0, member{0, 0, true}, member{1, 0, false}).downgrades(), reader(1, 2), writer(2, 3).requeues())

	acquitted = named("those who die while they wait", budget{revokes: 2},
		writer(0, 0), writer(1, 1), writer(2, 2), writer(2, 3).gives())
	acquittedReaders = named("readers and writers who die while they wait", budget{revokes: 2},
		reader(0, 0), writer(1, 1), reader(2, 2), writer(2, 3))
	twoReaders = named("one of two readers that hold dies", budget{revokes: 1, deletes: 1},
		reader(0, 0), reader(1, 1), writer(2, 2))

	foreignCalm = named("calm: etcd's own clients", budget{lost: 1, late: 1},
		writer(0, 0).ofEtcdsClient(), writer(1, 1).gives(), writer(2, 2).ofEtcdsClient())
	hasty = named("a session without a lock delay", budget{revokes: 1, deletes: 1},
		writer(0, 0), writer(1, 1).withoutDelay(), writer(2, 2))
)
