package main

// A saboteur takes one rule out of the code.
type saboteur struct {
	name string // of its patch
	rule string // what it takes out
	dir  string // the package whose test notices it
	test string
}

// saboteurs are those of README.md, in its order.
var saboteurs = []saboteur{
	{"trust-counted-from-the-reply", "a renewal counts from its sending, not from its reply",
		"./session", "TestLossIsToldBeforeTheLeaseExpires"},
	{"lease-trusted-too-long", "a lease is trusted for its TTL less the margin, and not 1.5 s longer",
		"./session", "TestLossIsToldBeforeTheLeaseExpires"},
	{"renewal-not-proved", "a renewal counts if a read at the same Raft term proves it",
		"./session", "TestRenewalAcknowledgedAtAnotherTermDoesNotCount"},
	{"watch-on-one-member-only", "the session key is watched on a majority of the members",
		"./session", "TestSessionKeyIsWatchedOnAMajorityOfTheMembers"},
	{"no-read-after-the-watch", "a read follows when the watch of the entry ahead stands",
		"./internal/queue", "TestReleaseBeforeTheWatchExistsWakesTheWaiterAtOnce"},
	{"no-lock-delay", "a waiter waits for the lock delay after a lease that ended",
		"./internal/queue", "TestLockDelayFollowsALeaseThatEndedAndNothingElse"},
	{"readers-ahead-not-remembered", "a writer remembers the readers ahead of it",
		"./internal/queue", "TestWriterDelaysIfAnyReaderAheadWasRevoked"},
	{"deletion-by-name", "a removal compares the create revision of the entry",
		"./internal/queue", "TestLateReleaseOfASetSparesTheNextEntriesAtItsKeys"},
	{"gate-not-compared", "a put compares the session key, so that a late copy does nothing",
		"./internal/queue", "TestCopyThatArrivesAfterTheSessionKeyWasPutAgainDoesNothing"},
	{"late-copy-not-swept", "what a late copy of a put has left is removed",
		"./internal/queue", "TestEntryRecreatedByALateAcquireIsRemoved"},
	{"requeued-without-delay", "an attempt that queues again after a loss waits for the lock delay",
		"./internal/queuemodel", "TestRunsOfTheQueueAreRunsOfTheModel"},
	{"no-read-after-the-delay", "an attempt reads its entry after the lock delay, before it holds",
		"./internal/queuemodel", "TestRunsOfTheQueueAreRunsOfTheModel"},
	{"judged-by-what-stands-now", "what is ahead is read at the revision at which the entry ahead went, not now",
		"./internal/queuemodel", "TestRunsOfTheQueueAreRunsOfTheModel"},
	{"session-key-read-now", "the session key is read at that revision, too; a needless delay is the only harm",
		"./internal/queuemodel", "TestRunsOfTheQueueAreRunsOfTheModel"},
	{"set-partly-found", "a set of which only a part stands queues again",
		"./internal/queue", "TestSetOfWhichOneEntryIsFoundQueuesAgain"},
	{"mark-not-passed-on", "a first waiter of a semaphore that gives up says what it has judged",
		"./internal/queue", "TestWaitersThatGiveUpCostNoDelay"},
	{"minhold-moves-without-comparison", "the move of MinHold compares the lease of the entry",
		"./internal/queue", "TestMoveDoesNotUndoARemovalByAnAdministrator"},
	{"fence-without-comparison", "a fenced write compares the entry of its holder",
		"./tests/etcd/fencing", "TestStaleHolderWritesNothing"},
	{"mark-not-compared", "a mark refuses a smaller token",
		"./fencing", "TestTokenBelowTheMarkIsRefused"},
}
