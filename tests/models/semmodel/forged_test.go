package semmodel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// The lease 1 has a permit, the others have turns.
func keyOf(lease int64) string {
	family := "@turn"
	if lease == 1 {
		family = "@"
	}
	return fmt.Sprintf("%ssem/a/%s/1-%x-ABCDEFGHIJKLMNOP", oracle.Keys, family, lease)
}

// says is a step of the permit or the turn of a lease, which was created at revision 9+lease.
func says(f *modeltrace.Forgery, lease int64, s queue.Step) { f.Says(lease, 9+lease, s) }

// judged is what it says of a look; ahead is the lease of the turn ahead, 0 if there is none.
func judged(f *modeltrace.Forgery, lease, read, ahead int64, delays bool) {
	s := queue.Step{Action: queue.Judged, Read: read, Delays: delays}
	if ahead != 0 {
		s.Ahead, s.AheadCreated = keyOf(ahead), 9+ahead
	}
	says(f, lease, s)
}

func holdsBy(f *modeltrace.Forgery, lease, read int64) {
	says(f, lease, queue.Step{Action: queue.Holds, Read: read})
}

// mark marks the turn of a lease.
func mark(f *modeltrace.Forgery, at, lease int64) { f.Mark(at, lease, 9+lease) }

// Three sessions, and a semaphore of one permit. The first holds a permit of revision 10. The second has a turn of
// revision 11 at the front, and the third one of 12.
func forge() *modeltrace.Forgery {
	f := &modeltrace.Forgery{Key: keyOf, Claims: true}
	f.Sessions(3)
	f.Limit(6, layout.Limit{Permits: 1})
	for lease := range int64(3) {
		f.Queue(10+lease, lease+1, lease+1)
	}
	for i := range f.Steps { // a put names the key of the permit, whatever it puts
		f.Steps[i].Key = strings.Replace(f.Steps[i].Key, "@turn", "@", 1)
	}
	judged(f, 1, 10, 0, false)
	holdsBy(f, 1, 10)
	judged(f, 3, 12, 2, false)
	return f
}

func TestForgedRecordsAreRefused(t *testing.T) {
	modeltrace.Forge(t, forge, Follow, map[string]modeltrace.Forged{
		"a turn is marked when there is room": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); mark(f, 21, 2); holdsBy(f, 2, 21) },
			func(f *modeltrace.Forgery) { mark(f, 21, 2); holdsBy(f, 2, 21) },
		},
		"a turn holds by its mark": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); mark(f, 21, 2); holdsBy(f, 2, 21) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); holdsBy(f, 2, 21) },
		},
		"none is marked before an older one": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); mark(f, 21, 2) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); mark(f, 21, 3) },
		},
		"a dead claim of a permit counts": {
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); f.Cleared(21, 1); mark(f, 22, 2) },
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); mark(f, 22, 2) },
		},
		"a dead claim causes a delay": {
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); judged(f, 2, 20, 0, true) },
			func(f *modeltrace.Forgery) { f.Revoked(20, 1); judged(f, 2, 20, 0, false) },
		},
		"a release causes none": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); judged(f, 2, 20, 0, false) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); judged(f, 2, 20, 0, true) },
		},
		"a release deletes the claim": {
			func(f *modeltrace.Forgery) { f.Released(20, 1) },
			func(f *modeltrace.Forgery) { f.Gone(20, keyOf(1), 1, oracle.ByRequest) },
		},
		"who waits knows the turn ahead": {
			func(f *modeltrace.Forgery) { f.Released(20, 1); mark(f, 21, 2); judged(f, 3, 22, 0, false) },
			func(f *modeltrace.Forgery) { f.Released(20, 1); judged(f, 3, 20, 0, false) },
		},
	})
}
