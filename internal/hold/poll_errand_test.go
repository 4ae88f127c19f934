package hold

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A renewal's read may be answered after the bell has rung, or after a poll that was sent later.
func TestErrandHidesNoBellAndNoLaterPoll(t *testing.T) {
	known, gone := new(Hold), new(Hold)
	r := &roster{holds: map[*Hold]time.Duration{known: never}}
	for i, c := range []struct{ asked, told, want time.Duration }{
		{never, time.Second, never},                     // the bell has rung
		{2 * time.Second, time.Second, 2 * time.Second}, // polled since
		{time.Second, 2 * time.Second, 2 * time.Second},
		{time.Second, never, never}, // something has changed
	} {
		r.holds[known] = c.asked
		r.noteErrand([]*Hold{known, gone}, c.told)
		if r.holds[known] != c.want || len(r.holds) != 1 {
			t.Errorf("case %d: asked at %v, want %v; %d holds", i, r.holds[known], c.want, len(r.holds))
		}
	}
}

// An errand is as good as a poll, but for what was not polled before, and for a lease that nothing else asks about.
func TestWhatAnErrandAsksIsNotPolledBesideIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		host := kit.Start(t, srv).Host
		r, l, old, fresh := &pollerOf(host).roster, host.Lease(), new(Hold), new(Hold)
		check := func(when string, want int) {
			t.Helper()
			r.holds[old], r.holds[fresh] = host.Clock()-time.Hour, never
			due := r.due(map[*lease.Lease][]*Hold{l: {old, fresh}})[l]
			if len(due) != want || due[len(due)-1] != fresh {
				t.Errorf("%s: %d holds are due, want %d", when, len(due), want)
			}
		}
		l.Errands.Run(func() *lease.Errand { return new(lease.Errand) })
		l.SetWatched(true)
		check("before", 2)
		l.Errands.Next()
		check("under way", 1)
		l.SetWatched(false)
		check("under way, and the lease is not watched", 2)
		l.SetWatched(true)
		l.Errands.Over()
		check("afterwards", 2)
		l.Errands.Run(func() *lease.Errand { return nil })
		l.Errands.Next()
		check("there is none", 2)
		clear(r.holds)
	})
}
