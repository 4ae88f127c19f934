package queuemodel

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

func TestMain(m *testing.M) { leak.Main(m) }

var full = flag.Bool("model.full", false, "search the large scenarios: a minute, and 1.2 GB of memory")

func search(t *testing.T, s scenario) string {
	m := newModel(s)
	r := m.search()
	t.Logf("%d states, %d steps, a newcomer beside a revoked holder in %d states", r.States, r.Steps, m.overlaps)
	return r.Wrong
}

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
	with(sweptAlone, besides), with(sweptTwoLost, besides, unknown), with(threeRegranted, besides, looksBack),
	with(keyDeletedSwept, besides), with(sweptBehindRevoked, besides),
	with(alwaysSwept, func(s *scenario) { s.lossy, s.name = true, s.name+", losses" }),
	readers, with(readers, unknown), with(readers, unknown, compacted), readersClose, writerLine,
	readersClean, writerLeavesReaders, readersRemoved, readersMinHold,
	readerWaits, with(readerWaits, unknown), readersCloseClean, keyOfWaiterDeleted,
	clean, with(clean, unknown), cleanLine, with(cleanFour, unknown), cleanUnanswered,
	minHold, with(minHold, unknown), minHoldClosing, minHoldLine, with(minHoldLine, unknown, compacted),
	minHoldUnanswered, cleanMinHold,
	removed, removedLine, removedUnanswered, cleanRemoved,
	lockAll, with(lockAll, unknown, compacted), lockAllTwoLost, with(lockAllTwoLost, unknown), lockAllFour, lockAllBetween,
	lockAllLater, with(lockAllLater, unknown), lockAllByHand, lockAllByHandRevoked, lockAllRemovedGivesUp,
	lockAllUnanswered, lockAllUnansweredByHand, lockAllCloses, lockAllRegranted, lockAllLine, with(lockAllLine, unknown),
	lockAllLineRegranted, crossing, ofOneSession, cleanSets, with(cleanSets, closes(0)),
	tree, with(tree, unknown, compacted), treeTwoLost, with(treeTwoLost, unknown), treeDeep, treeUnanswered, treeRegranted,
	downgrade, with(downgrade, unknown, compacted), with(downgrade, lastOfEqual), downgradeFour, downgradeWaits,
	with(downgradeWaits, unknown), with(downgradeWaits, lastOfEqual), downgradeRemoved,

	with(three, unknown, looksBack), with(threeRegranted, unknown, looksBack), with(givenUpForGood, unknown, looksBack),
	with(keyOfWaiterDeleted, looksBack), with(keyDeletedRegranted, unknown, looksBack), with(readers, unknown, looksBack),
	with(writerLeavesReaders, looksBack), with(readerWaits, unknown, looksBack), with(writerLine, looksBack),
	with(readersRemoved, looksBack), with(readersMinHold, looksBack), with(lockAllTwoLost, unknown, looksBack),
	with(lockAllByHandRevoked, looksBack), with(treeTwoLost, unknown, looksBack), with(downgradeWaits, unknown, looksBack),
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
	lockAllRemoved, lockAllUnansweredAgain, lockAllSwept, with(lockAllSwept, unknown),
	with(lockAllBetween, unknown, compacted), with(lockAllFour, unknown), with(lockAllByHandRevoked, unknown),
	with(lockAllCloses, unknown, compacted),
	with(lockAllRegranted, unknown), with(lockAllLineRegranted, unknown), with(treeDeep, unknown, compacted),
	with(treeRegranted, unknown, compacted), with(downgradeFour, unknown, lastOfEqual),
	with(readersBetween, looksBack), with(lockAllRegranted, looksBack), with(closing, unknown, looksBack),
}

// underRace are searched under the race detector, which makes a search ten times slower and has nothing to find: one
// goroutine searches. "go test ./..." searches all small ones.
var underRace = []scenario{
	three, handingOn, keyDeleted, sweptAlone, readers, minHold, removedLine, clean, lockAllUnanswered, downgradeRemoved,
}

func TestEveryInterleavingKeepsTheRules(t *testing.T) {
	scenarios := small
	if modelsearch.Race {
		scenarios = underRace
	}
	if *full {
		scenarios = large
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// A newcomer queues after a revocation. In the queue of a Mutex each entry waits for all that hold. So one that was
// there before the revocation delays for the revoked holder, and the newcomer behind it waits for that one. Where
// several hold, the newcomer may wait for one that held beside the revoked holder, and that one does not delay. README
// and docs/guarantees.md say for whom the delay is.
func TestNewcomerBehindOneThatWaitedHoldsEarlyOnlyWhereSeveralHold(t *testing.T) {
	for name, c := range map[string]struct {
		scenario scenario
		late     bool
	}{
		"a mutex":                   {three, false},
		"a mutex with lines":        {handingOn, false},
		"a writer behind readers":   {readers, true},
		"a set of two":              {lockAllBetween, true},
		"a tree":                    {tree, true},
		"readers behind a writer":   {writersAmongReaders, true},
		"a lock that is downgraded": {downgradeFour, true},
	} {
		if modelsearch.Race && len(c.scenario.attempts) > 3 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := newModel(c.scenario)
			m.behind = true
			if r := m.search(); r.Wrong != "" || m.overlaps == 0 || (m.late > 0) != c.late {
				t.Errorf("%d states of %d, %d of them behind one who was there before, %s", m.overlaps, r.States, m.late, r.Wrong)
			} else {
				t.Logf("%d states of %d, %d of them behind one who was there before", m.overlaps, r.States, m.late)
			}
		})
	}
}
