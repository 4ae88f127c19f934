package queuemodel

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var full = flag.Bool("model.full", false, "search the large scenarios: some minutes, and 2 GB of memory")

func search(t *testing.T, s scenario) string {
	r := newModel(s).search()
	t.Logf("%d states, %d steps", r.States, r.Steps)
	return r.Wrong
}

// small are searched in each run of the tests.
var small = []scenario{
	calm, calmClose, calmLate, calmLines, calmRemoval, calmDowngrade, calmMinHold,
	revoked, revokedFour, revokedLost, revokedLate, revokedLines, revokedClose, revokedSets, revokedCircle,
	revokedDowngrade, revokedAgain, tryLate,
	deletedOnce, deletedLost, deletedLate, deletedTwice, deletedLines, deletedSets, deletedSetsLate, deletedDowngrade,
	bothDeleted, linesReused, removed, removedReaders, removedSets, removedMinHold, noticed,
	twoReaders, foreignCalm, hasty,
}

// large are searched with -model.full only.
var large = []scenario{
	revokedReaders, revokedWriters, revokedBack, revokedBackLate, revokedTry, revokedMinHold, givenUp, crashes, revokedL2,
	deleted, deletedReused, deletedReaders, keyDeleted, removedLate, removedBack, removedClose,
	removedTry, removedDowngrade, acquitted, acquittedReaders,
}

func TestEveryInterleavingKeepsTheRules(t *testing.T) {
	scenarios := small
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
