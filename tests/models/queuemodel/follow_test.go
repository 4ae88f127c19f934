package queuemodel

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

func keyOf(lease int64) string {
	return fmt.Sprintf("%sa/@/%x-ABCDEFGHIJKLMNOP", oracle.Keys+"lock/", lease)
}

// Three sessions with leases 1, 2 and 3, whose keys are put at these revisions. The first holds by an entry of revision
// 10, the second waits with one of 11.
func forge() *modeltrace.Forgery {
	f := &modeltrace.Forgery{Key: keyOf, Claims: true}
	f.Sessions(3)
	f.Queue(10, 1, 1)
	f.Says(1, 10, free(10))
	f.Says(1, 10, held(10))
	f.Queue(11, 2, 2)
	f.Says(2, 11, queue.Step{Action: queue.Judged, Read: 11, Ahead: keyOf(1), AheadCreated: 10})
	return f
}

func free(read int64) queue.Step   { return queue.Step{Action: queue.Judged, Read: read} }
func delays(read int64) queue.Step { return queue.Step{Action: queue.Judged, Read: read, Delays: true} }
func held(read int64) queue.Step   { return queue.Step{Action: queue.Holds, Read: read} }

var waitedOut = queue.Step{Action: queue.Waited}

func TestForgedRecordsAreRefused(t *testing.T) {
	modeltrace.Forge(t, forge, Follow, map[string]modeltrace.Forged{
		"an entry that dies ahead causes a delay": {
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); clears(f, 2, true); f.Says(2, 11, held(25)) },
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); f.Says(2, 11, free(20)); f.Says(2, 11, held(20)) },
		},
		"a delay is waited for": {
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); clears(f, 2, true); f.Says(2, 11, held(25)) },
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); clears(f, 2, false); f.Says(2, 11, held(25)) },
		},
		"dead claims are cleared before a hold": {
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); clears(f, 2, true); f.Says(2, 11, held(25)) },
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); clears(f, 2, true); f.Says(2, 11, held(24)) },
		},
		"an entry that is released causes no delay": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); f.Says(2, 11, free(20)); f.Says(2, 11, held(20)) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); f.Says(2, 11, delays(20)) },
		},
		"an entry that has died before the put causes a delay": {
			func(f *modeltrace.Forgery) { newcomer(f, delays(22)) },
			func(f *modeltrace.Forgery) { newcomer(f, free(22)) },
		},
		"a look comes before a hold": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); f.Says(2, 11, free(20)); f.Says(2, 11, held(20)) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); f.Says(2, 11, held(20)) },
		},
		"a release deletes the entry and its claim": {
			func(f *modeltrace.Forgery) { f.Released(20, 1) },
			func(f *modeltrace.Forgery) { f.Gone(20, keyOf(1), 1, oracle.ByRequest); f.Cleared(21, 1) },
		},
		"a move deletes the claim": {
			func(f *modeltrace.Forgery) { f.Cleared(20, 1); write(f, 20, 1, 10, 9) },
			func(f *modeltrace.Forgery) { write(f, 20, 1, 10, 9); f.Cleared(21, 1) },
		},
		"the nearest entry is waited for": {
			func(f *modeltrace.Forgery) {
				f.Queue(20, 3, 3)
				f.Says(3, 20, queue.Step{Action: queue.Judged, Read: 20, Ahead: keyOf(2), AheadCreated: 11})
			},
			func(f *modeltrace.Forgery) {
				f.Queue(20, 3, 3)
				f.Says(3, 20, queue.Step{Action: queue.Judged, Read: 20, Ahead: keyOf(1), AheadCreated: 10})
			},
		},
		"a put compares the session key": {
			func(f *modeltrace.Forgery) { f.Put(20, modeltrace.SessionKey(3), 3); f.Queue(21, 3, 20) },
			func(f *modeltrace.Forgery) { f.Put(20, modeltrace.SessionKey(3), 3); f.Queue(21, 3, 3) },
		},
		"an entry that an administrator has written to is not held by": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); f.Says(2, 11, free(20)); write(f, 21, 2, 11, 2) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); write(f, 21, 2, 11, 2); f.Says(2, 11, free(22)) },
		},
		"nor is one that was moved in its delay": {
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); clears(f, 2, true); f.Says(2, 11, held(25)) },
			func(f *modeltrace.Forgery) {
				f.Revoked(20, 1)
				f.Says(2, 11, delays(20))
				f.Cleared(21, 2)
				write(f, 21, 2, 11, 9)
				f.Says(2, 11, waitedOut)
				f.Cleared(25, 1)
				f.Says(2, 11, held(25))
			},
		},
	})
}

// clears has the entry of a lease, which was put at 11, wait for its delay and clear the claim of lease 1 at 25.
func clears(f *modeltrace.Forgery, lease int64, waits bool) {
	f.Says(lease, 11, delays(20))
	if waits {
		f.Says(lease, 11, waitedOut)
	}
	f.Cleared(25, 1)
}

// newcomer has the waiter leave and the holder die before the third session puts its entry.
func newcomer(f *modeltrace.Forgery, judged queue.Step) {
	f.Released(20, 2)
	f.Revoked(21, 1)
	f.Queue(22, 3, 3)
	f.Says(3, 22, judged)
}

// write has another client write into the entry of a session, perhaps with another lease.
func write(f *modeltrace.Forgery, at, session, created, lease int64) {
	f.Put(at, keyOf(session), lease)
	kv := f.Last()
	kv.CreateRevision = created
	kv.Value = modeltrace.ValueOf("of "+keyOf(session), layout.Notice{By: "administrator", At: time.Unix(1e9, 0)})
}
