package queuemodel

// A scenario is what is searched: the attempts, and what may go wrong.
type scenario struct {
	name         string
	attempts     []plan
	faults       budget
	regrants     bool   // a session that has lost its leases is granted others
	closing      []int8 // sessions that may be closed
	movedDeleted bool   // an entry that was moved from its holder may be deleted by hand, too
	prompt       bool   // a reply is read before its session puts S again
	rules        rules  // broken on purpose
	expect       string // what these lead to; "" is nothing
}

// A plan is what one attempt may do.
type plan struct {
	session int8
	entries []member
	try     bool // TryLock
	givesUp bool
	again   bool // it queues for a second time when it has lost its lease or an entry
	minHold bool // its name stays taken after its release
	downs   bool // its first entry is a writer's, its second a reader's: while it holds it may let the first go
	hasty   bool // its session has no lock delay
	foreign bool // etcd's own client: it puts no claim, and looks at entries only
	after   int8 // it begins when that attempt is done, plus 1. So it may have the same keys
	next    int8 // the goroutine behind it in its line, plus 1
}

// A member is an entry of an attempt. Attempts of one session may have the same key, one after the other.
type member struct {
	key   int8
	queue int8
	write bool
}

// rules are those of the protocol that a scenario breaks, to see that the search notices.
type rules struct {
	// The put.
	noClaim       bool // it puts no claim
	putIgnoresC   bool // it does not compare the claim's key
	putIgnoresS   bool // it does not compare the gate
	oneL2         bool // the claims of two leases L1 are on one L2
	passUnchecked bool // a hand-off does not compare the entry that it replaces
	reuseAtOnce   bool // a key is used again while a put of it may come

	// The look and the hold.
	holdIgnoresE   bool // an entry without a claim is not looked at
	holdIgnoresC   bool // claims are not looked at
	holdIgnoresMod bool // of the own entries the create revision is compared
	holdIgnoresOwn bool // the own entries are not looked at
	tryIgnoresC    bool // TryLock does not look at claims
	oldLook        bool // an attempt holds by a look of any age

	// The delay.
	noDelay       bool // it is not waited for
	shortDelay    bool // LockDelay, where S stands, too
	delayFromDead bool // LockDelay counts from a reply that shows the claim dead, though S stands then
	bellUnheard   bool // a session that puts S again does not poll at once
	ownDelayOnly  bool // an attempt waits for its own delay, not for the holder's
	sightByKey    bool // a session remembers a dead claim by its key
	acquitsEqual  bool // a key of the same revision acquits
	acquitsAny    bool // a key acquits a claim that it does not exclude
	acquitsBehind bool // a key behind a claim acquits it

	// The clear.
	clearIgnoresOwn bool // it does not compare the own entries
	clearIgnoresMod bool // of these it compares the create revision
	clearIgnoresRev bool // it does not compare the claim's revision

	// The end.
	releaseOnlyE      bool // a release deletes the entry, not the claim
	releaseByName     bool // it compares no revision
	claimStays        bool // the claim of an entry that was deleted stays
	moveLeavesC       bool // MinHold's move leaves the claim
	removalLeavesC    bool // a removal leaves the claim
	downgradeLeavesC  bool
	closeL1First      bool // Close revokes L1 before L2
	removalEndsAtOnce bool // the lease of a removal does not outlast the time in which its owner is told
	removalDeletes    bool // a removal deletes the entry and its claim
}
