package queuemodel

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

const (
	early    = "early"
	orphan   = "orphan"
	needless = "needless"
	livelock = "livelock"
	freed    = "kept"
	order    = "order"
	both     = "exclusion"
	stuck    = "stuck"
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
	with(readersCloseClean, breaking(endedWhileWaitingDelays, needless)),
	with(clean, unknown, breaking(endedWhileWaitingDelays, needless)),
	with(readers, breaking(endedCountsAsLeft, early)),
	with(three, unknown, breaking(endedCountsAsLeft, early)),
	with(readers, breaking(endedCountsAsWaiting, early)),
	with(three, unknown, breaking(endedCountsAsWaiting, early)),
	with(keyOfWaiterDeleted, breaking(keyGoneByHandEndsALease, early)),
	with(readers, looksBack, breaking(anyLookIsOldEnough, early)),
	with(three, unknown, looksBack, breaking(anyLookIsOldEnough, early)),
	with(keyOfWaiterDeleted, looksBack, breaking(keyAloneEndsALease, early)),
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
	with(readers, breaking(readersPassWaitingWriters, order)),
	with(readers, breaking(writersPassReaders, order)),
	with(three, breaking(nothingIsReadAfterAWake, order)),
	with(three, breaking(earlierEndCounts, order)),
	with(ofOneSession, breaking(twoOfAQueueInABatch, both)),
	with(lockAllByHand, breaking(othersAreNotCompared, early)),
	with(lockAllRemoved, breaking(noticeIsOverlooked, early)),
	with(removedUnanswered, breaking(noticeIsOverlooked, early)),
	with(removed, breaking(oldLookSuffices, early)),
	with(lockAllUnansweredByHand, breaking(foundSpeaksForAll, early)),
	with(lockAllByHand, breaking(missingIsPutAgain, stuck)),
	with(crossing, breaking(setPutByTwoTxns, stuck)),
	with(lockAllBetween, breaking(laterQueuesAreReadNow, early)),
	with(lockAllBetween, breaking(delayOfTheLastQueue, early)),
	with(lockAllLater, breaking(unknownAsksPredecessorOnly, early)),
	with(lockAllBetween, breaking(setIsRemovedAtOnce, early)),
	with(lockAllBetween, breaking(leavingComparesOthers, orphan)),
	with(downgrade, breaking(downgradePutsAgain, order)),
	with(lockAllByHandRevoked, breaking(requeuedWithoutDelay, early)),
	with(lockAllSwept, breaking(sweepAtOnce, early)),
	with(tree, breaking(readersAreNotRemembered, early)),
	with(downgradeWaits, breaking(readersAreNotRemembered, early)),
	with(downgradeWaits, lastOfEqual, breaking(readersAreNotRemembered, early)),
	with(lockAllUnanswered, breaking(foundIsAnswered, orphan)),
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	for i, s := range broken {
		if modelsearch.Race && i%8 != 0 {
			continue
		}
		if (s.broken == removeAfterDelay) != *full {
			continue // that one is as large as the large ones
		}
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); !strings.HasPrefix(wrong, s.expect) {
				t.Errorf("found %q, want a violation %q", wrong, s.expect)
			}
		})
	}
}
