package queuemodel

import "slices"

// A scenario is what is searched: the sessions and attempts, and what may go wrong.
type scenario struct {
	name     string
	sessions int8
	attempts []plan

	revokes      int8   // leases that etcd may revoke although they were renewed
	revokable    []int8 // their sessions
	giveUpLeases int8   // leases that a session may give up by its own clock while etcd keeps them
	regrants     []int8 // sessions that get a new lease after a loss
	closing      []int8 // sessions that may be closed
	deleteKeys   int8   // session keys that may be deleted by hand
	latePuts     int8   // puts of a session key that may be carried out late
	removals     int8   // entries that administrators may remove by force
	deletes      int8   // entries of waiting attempts that administrators may delete by hand

	copies    int8 // of one enqueue in flight at the same time; 0 means 1
	lossy     bool // copies and replies may be lost
	unknown   bool // a watch may not tell when the entry ahead went
	compacted bool // what a read asks for may be compacted

	looksBack bool // an attempt may know which revision the store had a lock delay ago

	lastOfEqual bool // of two entries of a set that are ahead in a queue, the nearest is the last and not the first

	beside      bool // a copy may be sent while the reply to an earlier one is still waited for
	beganBefore bool // an attempt that sends its first enqueue may have begun before its session lost a lease
	lateGate    bool // a session may not have read yet that its put of the session key was carried out

	alwaysSuspects bool // the sweeper always has a reason to put the session key
	clean          bool // a delay without a fault is a violation; a Close has time to remove what it can

	broken rule
	expect string // what the broken rule leads to
}

// A plan is what one attempt may do.
type plan struct {
	session int8
	lock    int8
	shared  bool     // excludes no other shared attempt
	set     []member // instead of lock and shared
	givesUp bool
	again   bool // when it has lost an entry it queues anew, once; otherwise it gives up then
	slow    bool // it may send again before the reply has come, or give up then
	line    bool // another goroutine of its session waits behind it for the same lock
	minHold bool // its name stays taken after its release

	downgrades bool // its set is one lock, exclusive and shared; while it holds it may let the first go
}

// A rule is broken on purpose, to see that the search notices.
type rule string

const (
	nothingDelays               rule = "a revoked entry ahead causes no delay"
	nearestIsReadNow            rule = "the nearest entry is read now, not at the revision of the deletion"
	keyIsReadNow                rule = "the session key is read now, not at the revision of the deletion"
	keyMustGoWithEntry          rule = "a missing key causes a delay only if it stood one revision before the entry went"
	unknownAsksPredecessorOnly  rule = "with an unknown revision only the session key of the entry ahead is read"
	compactedAsksPredecessorNow rule = "after a compaction the present session key of the entry ahead decides"
	readersAreNotRemembered     rule = "a writer asks only for the session key of the reader that was the last to go"
	writersAreNotRemembered     rule = "a reader asks only for the session key of the writer that was the last to go"
	readersAreReadNow           rule = "a writer remembers the readers that stand at its reply, not at its creation"
	endedWhileWaitingDelays     rule = "a session whose key is gone delays, however its entries went"
	endedCountsAsLeft           rule = "a session whose key is gone counts as one that had left"
	endedCountsAsWaiting        rule = "a session whose entry went with its key counts as one that waited"
	keyGoneByHandEndsALease     rule = "a session key that is gone counts as the end of its lease, though an entry stands"
	anyLookIsOldEnough          rule = "a session that ended before the latest look does not delay, however late that was"
	keyAloneEndsALease          rule = "a session whose key went long ago does not delay, though its entry stood then"
	handOffForgetsReaders       rule = "the next in a writer's line does not learn of the readers ahead of the writer"
	setIsRemovedAtOnce          rule = "the waiting entries of a set are deleted whatever stands ahead of them"
	removeAtOnce                rule = "a waiting entry is deleted whatever stands ahead of it"
	removeInDelay               rule = "a waiting entry is deleted while its delay runs"
	removeByAnEarlierRead       rule = "that the entry ahead stands is read before the Txn that deletes"
	removeAfterDelay            rule = "a waiting entry is deleted a delay after the one ahead, whatever stands ahead"
	closeRemovesAtOnce          rule = "Close deletes its waiting entries at once"
	closeDeletesKeyFirst        rule = "Close deletes its session key first, so that those behind need no delay"
	placeWithoutDelay           rule = "a place is handed off without the delay that runs"
	handOffAtOnce               rule = "a waiting entry is replaced by the next goroutine's whatever stands ahead"
	requeuedWithoutDelay        rule = "an attempt that queues again after a loss holds without a delay"
	requeuedDelaysFromGrant     rule = "the delay of an attempt that queues again begins with the new lease"
	requeuedDelaysOnlyBehind    rule = "an attempt that queues again delays only if another stands ahead of it"
	foundReadsNow               rule = "an entry found by a read takes what is ahead now, not at its creation"
	foundIsAnswered             rule = "an entry found by a read counts as answered"
	gateIsNotCompared           rule = "an enqueue does not compare the session key"
	missingKeyPasses            rule = "an enqueue passes when the session key is missing"
	nothingIsSwept              rule = "an attempt that ended unanswered is forgotten"
	newGateSettles              rule = "an unanswered attempt is forgotten when the session key has been put since"
	sweepWithoutPut             rule = "the sweeper reads without putting the session key before"
	sweepAtOnce                 rule = "the sweeper deletes what it finds at once"
	endPutsTheKey               rule = "an attempt that ends unanswered puts the key itself and deletes its entry blindly"
	movedBeforeToldAboutIt      rule = "an entry is moved to a lease of its own before its holder's work has ended"
	unansweredLeaseIsRevoked    rule = "the lease of a move that was not answered is revoked as unused"
	closeDeletesKept            rule = "Close deletes the entry of a hold whose MinHold has not passed"
	keptIsSwept                 rule = "the sweeper deletes an entry that is kept"
	keptKeyIsUsedAgain          rule = "the next goroutine's entry has the key of the one that is kept"
	delayByTheLeaseOfTheEntry   rule = "the session key of the lease an entry is on decides, not of the one in its name"
	removalDeletes              rule = "a removal deletes the entry instead of moving it"
	waiterIsMoved               rule = "a removal moves an entry that waits"
	moveIsTheNotice             rule = "a removal puts its notice with the move, after the lease was granted"
	moveWithoutDelay            rule = "the lease of a removal does not outlast the lock delay of the entry itself"
	readersPassWaitingWriters   rule = "a reader waits for no writer that waits"
	writersPassReaders          rule = "a writer does not wait for readers"
	earlierEndCounts            rule = "how an earlier entry at the key ahead went is taken for the end of the one ahead"
	nothingIsReadAfterAWake     rule = "an attempt holds when the entry ahead is gone, and reads nothing"
	twoOfAQueueInABatch         rule = "two enqueues of one queue go in one batch"
	othersAreNotCompared        rule = "an attempt that waits in a queue does not compare its entries in the others"
	noticeIsOverlooked          rule = "an attempt that waits does not see that its entry elsewhere is to be moved"
	oldLookSuffices             rule = "an attempt holds by a look at its entries that is old"
	leavingComparesOthers       rule = "an entry of a set that is removed compares those that were removed before it"
	foundSpeaksForAll           rule = "an entry of a set that is found by a read speaks for the others"
	missingIsPutAgain           rule = "an entry of a set that is missing is put again"
	setPutByTwoTxns             rule = "two Txns put the entries of a set"
	laterQueuesAreReadNow       rule = "the queues that a set looks at later are judged by what stands then"
	delayOfTheLastQueue         rule = "a set waits for the lock delay of its last queue only"
	downgradePutsAgain          rule = "a downgrade deletes both entries and puts the shared one again"
	putAtAnyTime                rule = "the sweeper puts the key again before the attempts it refused have their place"
)

func (m *model) may(sessions []int8, n int8) bool { return slices.Contains(sessions, n) }
