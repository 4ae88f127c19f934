package queuemodel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

func keyOf(lease int64) string {
	return fmt.Sprintf("%sa/@/%x-ABCDEFGHIJKLMNOP", oracle.Keys+"lock/", lease)
}

// Three sessions with leases 1, 2 and 3, whose keys are put at these revisions. The first holds by an entry of revision
// 10, the second waits with one of 11.
func forge() *modeltrace.Forgery {
	f := &modeltrace.Forgery{Key: keyOf}
	f.Sessions(3)
	f.Queue(10, 1, 1)
	f.Says(1, 10, steps.Step{Action: steps.Judged, Read: 10})
	f.Says(1, 10, steps.Step{Action: steps.Holds})
	f.Queue(11, 2, 2)
	f.Says(2, 11, steps.Step{Action: steps.Judged, Read: 11, Ahead: keyOf(1), AheadCreated: 10})
	return f
}

func TestForgedRecordsAreRefused(t *testing.T) {
	free := steps.Step{Action: steps.Judged, Read: 20}
	delays := steps.Step{Action: steps.Judged, Read: 20, Delays: true}
	waited, holds := steps.Step{Action: steps.Waited}, steps.Step{Action: steps.Holds}
	modeltrace.Forge(t, forge, Follow, map[string]modeltrace.Forged{
		"a revoked entry ahead causes a delay": {
			func(f *modeltrace.Forgery) {
				f.Revoked(20, 1)
				f.Says(2, 11, delays)
				f.Says(2, 11, waited)
				f.Says(2, 11, holds)
			},
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); f.Says(2, 11, free); f.Says(2, 11, holds) },
		},
		"a delay is waited for": {
			func(f *modeltrace.Forgery) {
				f.Revoked(20, 1)
				f.Says(2, 11, delays)
				f.Says(2, 11, waited)
				f.Says(2, 11, holds)
			},
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); f.Says(2, 11, delays); f.Says(2, 11, holds) },
		},
		"a release causes none": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); f.Says(2, 11, free); f.Says(2, 11, holds) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); f.Says(2, 11, delays) },
		},
		"how an entry has left is judged by the session key at that revision": {
			func(f *modeltrace.Forgery) {
				f.Released(20, 1)
				f.Gone(21, modeltrace.SessionKey(1), 1, oracle.ByLease)
				f.Says(2, 11, steps.Step{Action: steps.Judged, Read: 22})
			},
			func(f *modeltrace.Forgery) {
				f.Released(20, 1)
				f.Gone(21, modeltrace.SessionKey(1), 1, oracle.ByLease)
				f.Says(2, 11, steps.Step{Action: steps.Judged, Read: 22, Delays: true})
			},
		},
		"an entry that waits is removed while the one ahead stands": {
			func(f *modeltrace.Forgery) { f.Released(20, 2) },
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); f.Released(21, 2) },
		},
		"the nearest entry is waited for": {
			func(f *modeltrace.Forgery) {
				f.Queue(20, 3, 3)
				f.Says(3, 20, steps.Step{Action: steps.Judged, Read: 20, Ahead: keyOf(2), AheadCreated: 11})
			},
			func(f *modeltrace.Forgery) {
				f.Queue(20, 3, 3)
				f.Says(3, 20, steps.Step{Action: steps.Judged, Read: 20, Ahead: keyOf(1), AheadCreated: 10})
			},
		},
		"a put compares the session key": {
			func(f *modeltrace.Forgery) { f.Put(20, modeltrace.SessionKey(3), 3); f.Queue(21, 3, 20) },
			func(f *modeltrace.Forgery) { f.Put(20, modeltrace.SessionKey(3), 3); f.Queue(21, 3, 3) },
		},
		"a call that queues again after a loss delays": {
			func(f *modeltrace.Forgery) { again(f, true) },
			func(f *modeltrace.Forgery) { again(f, false) },
		},
		"an entry that an administrator has written to is not held by": {
			func(f *modeltrace.Forgery) {
				f.Released(20, 1)
				f.Says(2, 11, free)
				f.Says(2, 11, holds)
				notice(f, 21)
			},
			func(f *modeltrace.Forgery) {
				f.Released(20, 1)
				notice(f, 21)
				f.Says(2, 11, steps.Step{Action: steps.Judged, Read: 22})
				f.Says(2, 11, holds)
			},
		},
	})
}

// again has the second session lose its lease, and its call queue again under lease 3.
func again(f *modeltrace.Forgery, delays bool) {
	f.Gone(20, modeltrace.SessionKey(2), 2, oracle.ByLease)
	f.Gone(20, keyOf(2), 2, oracle.ByLease)
	f.Released(21, 1)
	f.Again(22, 2, 3)
	f.Says(3, 22, steps.Step{Action: steps.Judged, Read: 22, Delays: delays})
}

// notice has an administrator write into the entry of the second session.
func notice(f *modeltrace.Forgery, at int64) {
	f.Put(at, keyOf(2), 2)
	kv := f.Last()
	kv.CreateRevision = 11
	kv.Value = modeltrace.ValueOf("of "+keyOf(2), layout.Notice{By: "administrator", At: time.Unix(1e9, 0)})
}

// A reader is ahead of the first entry of a session. What that knows of it passes to those that are put in its place,
// one after the other, also if an administrator has moved one to another lease.
func TestEntryIsNotFollowedThatMayKnowOfOthers(t *testing.T) {
	key := func(try int64) string { return keyOf(1) + fmt.Sprint(try) }
	reader := strings.Replace(keyOf(2), "@/", "@/!s", 1)
	for name, moved := range map[string]bool{"handed on twice": false, "and moved": true} {
		t.Run(name, func(t *testing.T) {
			f := &modeltrace.Forgery{Key: keyOf}
			f.Sessions(2)
			f.Put(10, reader, 2)
			for try := range int64(3) {
				at := 11 + 2*try
				if try > 0 {
					f.Gone(at, key(try-1), 1, oracle.ByRequest)
				}
				f.Steps = append(f.Steps, steps.Step{Action: steps.Sends, Key: key(try), Gate: 1})
				f.Put(at, key(try), 1)
				if try == 1 && moved {
					f.Put(at+1, key(try), 3)
					f.Last().CreateRevision = at
				}
				if try == 0 {
					f.Gone(at+1, reader, 2, oracle.ByRequest)
				}
			}
			r := Follow(modeltrace.NewHistory(&f.Record, f.Steps))
			if n := r.Counts[modeltrace.Stopped+handed]; n != 2 || len(r.Refused) > 0 {
				t.Errorf("of two entries that were put in the place of one, %d may know of the reader: %v", n, r)
			}
		})
	}
}

// The leases of others are counted among those that a state has, not among those of the scenario's sessions.
func TestRevisionsOfOthersAreCountedAgain(t *testing.T) {
	m := newModel(alone)
	s := m.start()
	const other = otherLeases + 1
	s.now, s.leases[0].key, s.leases[other].gone = 9, 5, 7
	m.reduce(&s)
	if key, gone := s.leases[0].key, s.leases[other].gone; key >= gone || gone > s.now {
		t.Errorf("of %d revisions, one lease's key was put at %d, and another's was gone at %d", s.now, key, gone)
	}
}
