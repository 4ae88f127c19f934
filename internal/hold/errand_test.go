package hold

import (
	"testing"
	"time"
)

// A renewal's read may be answered after the bell has rung, or after a poll that was sent later.
func TestErrandHidesNoBellAndNoLaterPoll(t *testing.T) {
	known, gone := new(Hold), new(Hold)
	p := &poller{holds: map[*Hold]time.Duration{known: never}}
	for i, c := range []struct{ asked, told, want time.Duration }{
		{never, time.Second, never},                     // the bell has rung
		{2 * time.Second, time.Second, 2 * time.Second}, // polled since
		{time.Second, 2 * time.Second, 2 * time.Second},
		{time.Second, never, never}, // something has changed
	} {
		p.holds[known] = c.asked
		p.askedAgain([]*Hold{known, gone}, c.told)
		if p.holds[known] != c.want || len(p.holds) != 1 {
			t.Errorf("case %d: asked at %v, want %v; %d holds", i, p.holds[known], c.want, len(p.holds))
		}
	}
}
