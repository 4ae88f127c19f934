package queuemodel

import (
	"strings"
	"testing"
)

const (
	exclusion = "exclusion"
	order     = "order"
	stuck     = "stuck"
	needless  = "needless"
)

func breaking(s scenario, what, expect string, r rules) scenario {
	s.name, s.expect, s.rules = what+", in: "+s.name, expect, r
	return s
}

// broken are the rules broken on purpose. The search has to notice each.
var broken = []scenario{
	breaking(revoked, "a put puts no claim", exclusion, rules{noClaim: true}),
	breaking(deletedReused, "a put does not compare its claim's key", exclusion, rules{putIgnoresC: true}),
	breaking(revokedLate, "a put does not compare the gate", stuck, rules{putIgnoresS: true}),
	breaking(revokedBack, "one L2 serves two leases L1", exclusion, rules{oneL2: true}),
	breaking(linesReused, "a hand-off does not compare the entry that it replaces", exclusion, rules{passUnchecked: true}),
	breaking(revokedLate, "a key is used again while a put of it may come", stuck, rules{reuseAtOnce: true}),

	breaking(revokedL2, "a hold looks at claims and not at entries", order, rules{holdIgnoresE: true}),
	breaking(revoked, "a hold looks at entries and not at claims", exclusion, rules{holdIgnoresC: true}),
	breaking(removed, "of the own entries the create revision is compared", exclusion, rules{holdIgnoresMod: true}),
	breaking(removed, "a clear compares the create revision of the own entries", exclusion, rules{clearIgnoresMod: true}),
	breaking(deletedSets, "a set does not look at its own entries", exclusion, rules{holdIgnoresOwn: true}),
	breaking(revokedTry, "TryLock does not look at claims", exclusion, rules{tryIgnoresC: true}),
	breaking(deleted, "an attempt holds by an old look", exclusion, rules{oldLook: true}),

	breaking(revoked, "the delay is not waited for", exclusion, rules{noDelay: true}),
	breaking(deleted, "LockDelay is waited for where the session key stands", exclusion, rules{shortDelay: true}),
	breaking(deleted, "LockDelay counts from a reply that shows the session key", exclusion, rules{delayFromDead: true}),
	breaking(bothDeleted, "a session that puts its key again does not poll", exclusion, rules{bellUnheard: true}),
	breaking(hasty, "an attempt waits for its own delay, not for the holder's", exclusion, rules{ownDelayOnly: true}),
	breaking(deletedTwice, "a session remembers a dead claim by its key", exclusion, rules{sightByKey: true}),
	breaking(deletedDowngrade, "a key of the same revision acquits a claim", exclusion, rules{acquitsEqual: true}),
	breaking(twoReaders, "a key acquits a claim that it does not exclude", exclusion, rules{acquitsAny: true}),
	breaking(acquitted, "a key behind a claim acquits it", exclusion, rules{acquitsBehind: true}),

	breaking(deletedReaders, "a clear does not compare the own entries", exclusion, rules{clearIgnoresOwn: true}),
	breaking(deletedReused, "a clear does not compare the claim's revision", exclusion, rules{clearIgnoresRev: true}),

	breaking(calm, "a release deletes the entry and not the claim", needless, rules{releaseOnlyE: true}),
	breaking(revokedLate, "a release compares no revision", exclusion, rules{releaseByName: true}),
	breaking(deletedOnce, "the claim of a deleted entry stays", stuck, rules{claimStays: true}),
	breaking(calmMinHold, "MinHold's move leaves the claim", needless, rules{moveLeavesC: true}),
	breaking(calmRemoval, "a removal leaves the claim", needless, rules{removalLeavesC: true}),
	breaking(calmRemoval, "a removal deletes the entry and the claim", exclusion, rules{removalDeletes: true}),
	breaking(calmRemoval, "the lease of a removal ends before its owner is told", exclusion,
		rules{removalEndsAtOnce: true}),
	breaking(calmDowngrade, "a downgrade leaves the claim", needless, rules{downgradeLeavesC: true}),
	breaking(calmClose, "Close revokes L1 first", needless, rules{closeL1First: true}),
}

// exceptions are faults after which two may hold: docs/guarantees.md lists them.
var exceptions = []scenario{
	exception("L1 and L2 are revoked", budget{revokes: 1, revokesL2: 1}, writer(0, 0), writer(1, 1), writer(2, 2)),
	exception("L2 is revoked, and the entry deleted", budget{revokesL2: 1, deletes: 1}, writer(0, 0), writer(1, 1)),
	with(exception("an entry is removed, and its own lease revoked", budget{removals: 1, deletes: 1},
		writer(0, 0), writer(1, 1)),
		func(s *scenario) { s.movedDeleted = true }),
	exception("an entry and its session key are deleted before the reply to a look is read",
		budget{deletes: 1, keysDeleted: 1}, writer(0, 0), writer(1, 1)),
	exception("one of etcd's own clients behind a revoked lease", budget{revokes: 1},
		writer(0, 0), writer(1, 1).ofEtcdsClient()),
	exception("one of etcd's own clients behind a deleted entry", budget{deletes: 1},
		writer(0, 0), writer(1, 1).ofEtcdsClient()),
	exception("behind one of etcd's own clients whose lease is revoked", budget{revokes: 1},
		writer(0, 0).ofEtcdsClient(), writer(1, 1)),
}

func exception(name string, f budget, attempts ...plan) scenario {
	s := named(name, f, attempts...)
	s.expect = exclusion
	return s
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	expectEach(t, broken)
}

func TestEachExceptionIsFound(t *testing.T) {
	expectEach(t, exceptions)
}

func expectEach(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			wrong := search(t, s)
			if !strings.HasPrefix(wrong, s.expect) {
				t.Errorf("found %q, want a violation %q", wrong, s.expect)
			}
		})
	}
}
