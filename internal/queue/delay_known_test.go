package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// What ends earlier counts: the lock delay from when the session key was gone, or ToldWithin from when the claim was
// dead. Of each it is the longer one, of the session's own and the claim's.
func TestDelayOfAClaimEndsWhenItsHolderHasBeenTold(t *testing.T) {
	t.Parallel()
	const own, told = 2 * time.Second, 8 * time.Second
	began := time.Now()
	at := func(d time.Duration) time.Time { return began.Add(d) }
	less := layout.Claim{LockDelay: time.Second, ToldWithin: 7 * time.Second}
	more := layout.Claim{LockDelay: 5 * time.Second, ToldWithin: 11 * time.Second}
	for name, c := range map[string]struct {
		says layout.Claim
		gone time.Duration // when the session key was first seen gone; negative: it stands
		want time.Duration
	}{
		"the session is gone":                  {layout.Claim{}, 0, own},
		"the session lives":                    {layout.Claim{}, -1, told},
		"the session goes later":               {layout.Claim{}, time.Second, time.Second + own},
		"the session goes when it is too late": {layout.Claim{}, told - time.Second, told},
		"the holder asks for more":             {more, 0, 5 * time.Second},
		"the holder lives, and asks for more":  {more, -1, 11 * time.Second},
		"the holder asks for less":             {less, 0, own},
		"the holder lives, and asks for less":  {less, -1, told},
	} {
		var s delays
		claim := deadClaim{key: "a", rev: 7}
		s.noteDead([]deadClaim{claim}, began)
		s.noteExamined([]deadClaim{claim}, c.says, 0, c.gone == 0, began)
		for _, later := range []time.Duration{c.gone, told} { // seen again, which changes nothing
			if later > 0 {
				s.noteDead([]deadClaim{claim}, at(later))
				s.noteExamined([]deadClaim{claim}, c.says, 0, c.gone >= 0, at(later))
			}
		}
		if end, known := s.end(claim, own); !known || end.Sub(began) != c.want {
			t.Errorf("%s: the delay ends after %v (known %v), want %v", name, end.Sub(began), known, c.want)
		}
	}
}

// A key may be that of another claim later. What was seen of the first says nothing of the second, and what is heard
// late of the first neither.
func TestDelaysOfTwoClaimsAtOneKeyAreToldApart(t *testing.T) {
	t.Parallel()
	const own = time.Second
	early, late := time.Now(), time.Now().Add(time.Hour)
	first, second := deadClaim{key: "a", rev: 7, acquitted: true}, deadClaim{key: "a", rev: 9}
	var s delays
	s.noteDead([]deadClaim{first}, early)
	s.noteExamined([]deadClaim{first}, layout.Claim{}, 0, true, early)
	if _, known := s.end(first, own); !known {
		t.Error("it is acquitted, and not known")
	}
	for _, happens := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"it is seen", func() { s.noteDead([]deadClaim{second}, late) }},
		{"the first is examined once more", func() { s.noteExamined([]deadClaim{first}, layout.Claim{}, 0, true, late) }},
		{"the first is seen once more", func() { s.noteDead([]deadClaim{first}, late) }},
	} {
		happens.do()
		if end, known := s.end(second, own); known {
			t.Errorf("%s: the delay of the second ends at %v, and it was not examined", happens.name, end)
		}
	}
	s.noteDead([]deadClaim{second}, late)
	s.noteExamined([]deadClaim{second}, layout.Claim{}, 0, true, late)
	s.noteExamined([]deadClaim{first}, layout.Claim{LockDelay: time.Hour}, 0, true, late)
	if end, known := s.end(second, own); !known || !end.Equal(late.Add(own)) {
		t.Errorf("the delay of the second ends %v after it was seen, known %v; want %v", end.Sub(late), known, own)
	}
}

// A look of a reader does not see the older reader that excluded a writer. A later look of a writer does.
func TestClaimThatIsAcquittedLaterCostsNoMoreDelay(t *testing.T) {
	t.Parallel()
	claim, began := deadClaim{key: "a", rev: 7}, time.Now()
	var s delays
	s.noteDead([]deadClaim{claim}, began)
	claim.acquitted = true
	s.noteDead([]deadClaim{claim}, began.Add(time.Second))
	if end, known := s.end(claim, time.Hour); !known || end.After(began) {
		t.Errorf("the delay ends %v after it was seen, known %v", end.Sub(began), known)
	}
}

// A session may live for months, and see claims that other sessions clear.
func TestDelaysAreForgottenWhenThereAreMany(t *testing.T) {
	t.Parallel()
	var s delays
	began := time.Now()
	for i := range maxDelays {
		s.noteDead([]deadClaim{{key: fmt.Sprint(i), rev: 1}}, began)
	}
	recent := deadClaim{key: "recent", rev: 1}
	s.noteDead([]deadClaim{recent}, began.Add(delayLasts))
	if len(s.of) != maxDelays+1 {
		t.Errorf("%d are remembered, and none is old enough to be forgotten", len(s.of))
	}
	now := deadClaim{key: "now", rev: 1}
	s.noteDead([]deadClaim{now}, began.Add(delayLasts+1))
	if len(s.of) != 2 || s.get(recent).rev == 0 || s.get(now).rev == 0 {
		t.Errorf("%d are remembered, want the two that are recent", len(s.of))
	}
	if longest := 10*time.Minute + kit.ToldWithin; delayLasts < longest { // layout bounds what a claim may ask for
		t.Errorf("a delay is remembered for %v, and lasts up to %v", delayLasts, longest)
	}
}
