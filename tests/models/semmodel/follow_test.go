package semmodel

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

func keyOf(lease int64) string {
	return fmt.Sprintf("%ssem/a/@/1-%x-ABCDEFGHIJKLMNOP", oracle.Keys, lease)
}

// judgedAt is what the permit of a lease says that was created at revision 9+lease: the one ahead of it is that of the
// lease before.
func judgedAt(f *modeltrace.Forgery, lease, read int64, s steps.Step) {
	s.Action, s.Read, s.Ahead, s.AheadCreated = steps.Judged, read, keyOf(lease-1), 8+lease
	f.Says(lease, 9+lease, s)
}

func says(f *modeltrace.Forgery, lease int64, all ...steps.Action) {
	for _, a := range all {
		f.Says(lease, 9+lease, steps.Step{Action: a})
	}
}

func markOf(f *modeltrace.Forgery, at, lease, says int64) { f.Mark(at, lease, 9+lease, says) }

// marksAndHolds has the permit of a lease marked, and held.
func marksAndHolds(f *modeltrace.Forgery, at, lease, mark int64) {
	markOf(f, at, lease, mark)
	says(f, lease, steps.Holds)
}

// Five sessions with leases 1 to 5, whose keys are put at these revisions, and a semaphore of one permit. The first
// holds by a permit of revision 10, the second is the first waiter with one of 11, and the third far behind it, with
// one of 12.
func forge() *modeltrace.Forgery {
	f := &modeltrace.Forgery{Key: keyOf}
	f.Sessions(5)
	f.Limit(6, layout.Limit{Permits: 1, High: 1})
	f.Queue(10, 1, 1)
	f.Says(1, 10, steps.Step{Action: steps.Judged, Read: 10})
	says(f, 1, steps.Holds)
	f.Queue(11, 2, 2)
	judgedAt(f, 2, 11, steps.Step{First: true})
	f.Queue(12, 3, 3)
	judgedAt(f, 3, 12, steps.Step{})
	return f
}

// handedOn has the first holder release, and the second hold.
func handedOn(f *modeltrace.Forgery) {
	f.Released(20, 1)
	marksAndHolds(f, 21, 2, 20)
}

func TestForgedRecordsAreRefused(t *testing.T) {
	leads, delays := steps.Step{First: true}, steps.Step{First: true, Delays: true}
	compacted := steps.Step{First: true, Delays: true, Unfound: true}
	modeltrace.Forge(t, forge, Follow, map[string]modeltrace.Forged{
		"a revoked permit ahead causes a delay": {
			func(f *modeltrace.Forgery) {
				f.Revoked(20, 1)
				judgedAt(f, 2, 20, delays)
				says(f, 2, steps.Waited)
				marksAndHolds(f, 21, 2, 20)
			},
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); marksAndHolds(f, 21, 2, 20) },
		},
		"a delay is waited for": {
			func(f *modeltrace.Forgery) {
				f.Revoked(20, 1)
				judgedAt(f, 2, 20, delays)
				says(f, 2, steps.Waited)
				marksAndHolds(f, 21, 2, 20)
			},
			func(f *modeltrace.Forgery) {
				f.Revoked(20, 1)
				judgedAt(f, 2, 20, delays)
				marksAndHolds(f, 21, 2, 20)
			},
		},
		"a release causes no delay": {
			handedOn,
			func(f *modeltrace.Forgery) { f.Released(20, 1); judgedAt(f, 2, 20, delays) },
		},
		"a release may cause one if its session has ended since": {
			func(f *modeltrace.Forgery) {
				f.Released(20, 1)
				f.Gone(21, modeltrace.SessionKey(1), 1, oracle.ByLease)
				judgedAt(f, 2, 21, delays)
			},
			func(f *modeltrace.Forgery) {
				f.Released(20, 1)
				f.Gone(21, modeltrace.SessionKey(1), 1, oracle.ByLease)
				judgedAt(f, 2, 20, delays)
			},
		},
		"a session key that was put again proves that its lease lives": {
			func(f *modeltrace.Forgery) {
				f.Gone(20, modeltrace.SessionKey(1), 1, oracle.ByDeletion)
				f.Released(21, 1)
				f.Put(22, modeltrace.SessionKey(1), 1)
				marksAndHolds(f, 23, 2, 21)
			},
			func(f *modeltrace.Forgery) {
				f.Gone(20, modeltrace.SessionKey(1), 1, oracle.ByDeletion)
				f.Released(21, 1)
				marksAndHolds(f, 22, 2, 21)
			},
		},
		"a mark says all that was waited for": {
			handedOn,
			func(f *modeltrace.Forgery) { f.Released(20, 1); marksAndHolds(f, 21, 2, 11) },
		},
		"a mark says nothing that was not waited for": {
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); markOf(f, 21, 2, 11); f.Released(22, 2) },
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); markOf(f, 21, 2, 20); f.Released(22, 2) },
		},
		"a first waiter that leaves puts a mark": {
			func(f *modeltrace.Forgery) { markOf(f, 20, 2, 11); f.Released(21, 2) },
			func(f *modeltrace.Forgery) { f.Released(21, 2) },
		},
		"a session that ends leaves none": {
			func(f *modeltrace.Forgery) {
				f.Released(21, 2)
				f.Gone(22, modeltrace.SessionKey(2), 2, oracle.ByLease)
			},
			func(f *modeltrace.Forgery) {
				f.Released(21, 2)
				f.Queue(22, 2, 2)
				f.Released(23, 2)
				f.Gone(24, modeltrace.SessionKey(2), 2, oracle.ByLease)
			},
		},
		"a permit that has waited holds by its mark": {
			handedOn,
			func(f *modeltrace.Forgery) { f.Released(20, 1); says(f, 2, steps.Holds) },
		},
		"what is held fits into the limit": {
			func(f *modeltrace.Forgery) {
				f.Limit(20, layout.Limit{Permits: 2, High: 2})
				marksAndHolds(f, 21, 2, 11)
			},
			func(f *modeltrace.Forgery) { marksAndHolds(f, 21, 2, 11) },
		},
		"a permit holds by its put if there is room": {
			func(f *modeltrace.Forgery) {
				f.Queue(13, 4, 4)
				judgedAt(f, 4, 13, steps.Step{})
			},
			func(f *modeltrace.Forgery) {
				f.Queue(13, 4, 4)
				f.Says(4, 13, steps.Step{Action: steps.Judged, Read: 13})
				says(f, 4, steps.Holds)
			},
		},
		"a far one becomes the first waiter by the mark of the one ahead": {
			func(f *modeltrace.Forgery) { handedOn(f); judgedAt(f, 3, 21, leads) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); judgedAt(f, 3, 20, leads) },
		},
		"a far one does not hold": {
			func(f *modeltrace.Forgery) {
				handedOn(f)
				judgedAt(f, 3, 21, leads)
				f.Released(22, 2)
				marksAndHolds(f, 23, 3, 22)
			},
			func(f *modeltrace.Forgery) {
				handedOn(f)
				f.Released(22, 2)
				marksAndHolds(f, 23, 3, 22)
			},
		},
		"the nearest permit is waited for": {
			func(f *modeltrace.Forgery) { f.Queue(13, 4, 4); judgedAt(f, 4, 13, steps.Step{}) },
			func(f *modeltrace.Forgery) {
				f.Queue(13, 4, 4)
				f.Says(4, 13, steps.Step{Action: steps.Judged, Read: 13, Ahead: keyOf(2), AheadCreated: 11})
			},
		},
		"a permit ahead that went without a mark causes a delay": {
			func(f *modeltrace.Forgery) { f.Revoked(20, 2); judgedAt(f, 3, 20, delays) },
			func(f *modeltrace.Forgery) { f.Revoked(20, 2); judgedAt(f, 3, 20, leads) },
		},
		"what was waited for ahead of a mark is not waited for again": {
			func(f *modeltrace.Forgery) {
				waitedFor(f)
				f.Released(24, 2)
				marksAndHolds(f, 25, 3, 24)
			},
			func(f *modeltrace.Forgery) { waitedFor(f); judgedAt(f, 3, 24, delays) },
		},
		"a delay begins where history is compacted": {
			func(f *modeltrace.Forgery) { handedOn(f); judgedAt(f, 3, 21, leads); judgedAt(f, 3, 22, compacted) },
			func(f *modeltrace.Forgery) { handedOn(f); judgedAt(f, 3, 21, leads); judgedAt(f, 3, 22, delays) },
		},
		"a put compares the session key": {
			func(f *modeltrace.Forgery) { f.Put(20, modeltrace.SessionKey(4), 4); f.Queue(21, 4, 20) },
			func(f *modeltrace.Forgery) { f.Put(20, modeltrace.SessionKey(4), 4); f.Queue(21, 4, 4) },
		},
		"a call that queues again after a loss delays": {
			func(f *modeltrace.Forgery) { again(f, true) },
			func(f *modeltrace.Forgery) { again(f, false) },
		},
	})
}

// waitedFor has the second wait for the first, whose lease is revoked, and says so to the third.
func waitedFor(f *modeltrace.Forgery) {
	f.Revoked(20, 1)
	judgedAt(f, 2, 20, steps.Step{First: true, Delays: true})
	says(f, 2, steps.Waited)
	marksAndHolds(f, 21, 2, 20)
	judgedAt(f, 3, 21, steps.Step{First: true})
}

// again has the third session lose its lease, and its call queue again under lease 5.
func again(f *modeltrace.Forgery, delays bool) {
	f.Gone(20, modeltrace.SessionKey(3), 3, oracle.ByLease)
	f.Gone(20, keyOf(3), 3, oracle.ByLease)
	f.Again(22, 3, 5)
	f.Says(5, 22, steps.Step{Action: steps.Judged, Read: 22, Delays: delays,
		Ahead: keyOf(2), AheadCreated: 11})
}
