package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
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
		for later := time.Duration(0); later <= told; later += lookAgain { // seen again, which changes nothing
			s.noteDead([]deadClaim{claim}, own, at(later))
			s.noteExamined([]deadClaim{claim}, c.says, 0, c.gone >= 0 && c.gone <= later, at(later))
		}
		if d := s.get(claim); !d.examined || d.end(own).Sub(began) != c.want {
			t.Errorf("%s: the delay ends after %v (%+v), want %v", name, d.end(own).Sub(began), d, c.want)
		}
	}
}

// A reply a quarter of the lock delay after its time says that there may have been no quorum. So does a long time
// without a reply. The delay does not begin a third time.
func TestDelayBeginsOnceMoreAfterATimeWithoutReplies(t *testing.T) {
	t.Parallel()
	const most = 1500 * time.Millisecond // between two replies, with a lock delay of 2 s: a second and a quarter of that
	const long, short = 2 * time.Second, 400 * time.Millisecond
	type replies = []time.Duration // each since the reply before
	for name, c := range map[string]struct {
		own  time.Duration
		gone bool
		says time.Duration // the lock delay of the claim
		replies
		want time.Duration // since the first reply
	}{
		"each in time":             {long, true, 0, replies{most, most}, long},
		"one too late":             {long, true, 0, replies{most + 1}, most + 1 + long},
		"the second too late":      {long, true, 0, replies{time.Second, 9 * time.Second}, 10*time.Second + long},
		"two too late":             {long, true, 0, replies{most + 1, time.Hour}, most + 1 + long},
		"and the session stands":   {long, false, 0, replies{9 * time.Second}, 9*time.Second + lease.ToldWithin(long)},
		"a short delay, in time":   {short, true, 0, replies{short * 5 / 4}, short},
		"a short delay, too late":  {short, true, 0, replies{short*5/4 + 1}, short*5/4 + 1 + short},
		"the claim's is longer":    {short, true, long, replies{most}, long},
		"and a reply comes late":   {short, true, long, replies{most + 1}, most + 1 + long},
		"our own is off, in time":  {0, true, long, replies{most}, long},
		"our own is off, too late": {0, true, long, replies{most + 1}, most + 1 + long},
		"both are off":             {0, false, 0, replies{time.Hour}, time.Hour + lease.ToldWithin(0)},
		"both off, in time":        {0, false, 0, replies{1250 * time.Millisecond}, lease.ToldWithin(0)},
		"both off, too late":       {0, true, 0, replies{1250*time.Millisecond + 1}, 1250*time.Millisecond + 1},
	} {
		var s delays
		claim, began := deadClaim{key: "a", rev: 7}, time.Now()
		at := began
		for _, since := range append([]time.Duration{0}, c.replies...) {
			at = at.Add(since)
			s.noteDead([]deadClaim{claim}, c.own, at)
			s.noteExamined([]deadClaim{claim}, layout.Claim{LockDelay: c.says}, 0, c.gone, at)
		}
		if got := s.get(claim).end(c.own).Sub(began); got != c.want {
			t.Errorf("%s: the delay ends after %v, want %v", name, got, c.want)
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
	s.noteDead([]deadClaim{first}, own, early)
	s.noteExamined([]deadClaim{first}, layout.Claim{}, 0, true, early)
	if !s.get(first).acquitted {
		t.Error("it is not known as acquitted")
	}
	for _, happens := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"it is seen", func() { s.noteDead([]deadClaim{second}, own, late) }},
		{"the first is examined once more", func() { s.noteExamined([]deadClaim{first}, layout.Claim{}, 0, true, late) }},
		{"the first is seen once more", func() { s.noteDead([]deadClaim{first}, own, late) }},
	} {
		happens.do()
		if d := s.get(second); d.examined || d.acquitted {
			t.Errorf("%s: of the second %+v is known, and it was not examined", happens.name, d)
		}
	}
	s.noteDead([]deadClaim{second}, own, late)
	s.noteExamined([]deadClaim{second}, layout.Claim{}, 0, true, late)
	s.noteExamined([]deadClaim{first}, layout.Claim{LockDelay: time.Hour}, 0, true, late)
	if d := s.get(second); !d.examined || !d.end(own).Equal(late.Add(own)) {
		t.Errorf("the delay of the second ends %v after it was seen (%+v), want %v", d.end(own).Sub(late), d, own)
	}
}

// Then a smaller revision is the later one: the session waits for that claim as for any other.
func TestDelayBeginsAnewForAClaimThatARestoreBringsBack(t *testing.T) {
	t.Parallel()
	const own = time.Second
	before, after := time.Now(), time.Now().Add(time.Hour)
	late, restored := deadClaim{key: "a", rev: 9}, deadClaim{key: "a", rev: 7}
	var s delays
	s.noteDead([]deadClaim{late}, own, before)
	s.noteExamined([]deadClaim{late}, layout.Claim{}, 0, true, before)
	s.noteDead([]deadClaim{restored}, own, after)
	s.noteExamined([]deadClaim{restored}, layout.Claim{}, 0, true, after)
	if d := s.get(restored); !d.examined || !d.end(own).Equal(after.Add(own)) {
		t.Errorf("of the restored claim %+v is known", d)
	}
}

// A look of a reader does not see the older reader that excluded a writer. A later look of a writer does.
func TestClaimThatIsAcquittedLaterCostsNoMoreDelay(t *testing.T) {
	t.Parallel()
	claim, began := deadClaim{key: "a", rev: 7}, time.Now()
	var s delays
	s.noteDead([]deadClaim{claim}, time.Hour, began)
	claim.acquitted = true
	s.noteDead([]deadClaim{claim}, time.Hour, began.Add(time.Second))
	claim.acquitted = false
	s.noteDead([]deadClaim{claim}, time.Hour, began.Add(2*time.Second))
	if !s.get(claim).acquitted {
		t.Error("it is not known as acquitted")
	}
}

// A session may live for months, and see claims that other sessions clear.
func TestDelaysAreForgottenWhenThereAreMany(t *testing.T) {
	t.Parallel()
	var s delays
	began := time.Now()
	for i := range maxDelays {
		s.noteDead([]deadClaim{{key: fmt.Sprint(i), rev: 1}}, 0, began)
	}
	recent := deadClaim{key: "recent", rev: 1}
	s.noteDead([]deadClaim{recent}, 0, began.Add(delayLasts))
	if len(s.of) != maxDelays+1 {
		t.Errorf("%d are remembered, and none is old enough to be forgotten", len(s.of))
	}
	now := deadClaim{key: "now", rev: 1}
	s.noteDead([]deadClaim{now}, 0, began.Add(delayLasts+1))
	if len(s.of) != 2 || s.get(recent).rev == 0 || s.get(now).rev == 0 {
		t.Errorf("%d are remembered, want the two that are recent", len(s.of))
	}
	if longest := 10*time.Minute + kit.ToldWithin; delayLasts < longest { // layout bounds what a claim may ask for
		t.Errorf("a delay is remembered for %v, and lasts up to %v", delayLasts, longest)
	}
}
