package hold

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// rosterAt returns a roster whose clock shows now, and that of a session whose locks are polled once a second.
func rosterAt(now time.Duration) *roster {
	return &roster{
		clock: func() time.Duration { return now }, interval: time.Second, tick: time.Second / 2,
		holds: make(map[*Hold]time.Duration), failed: never,
	}
}

// newLease returns a lease, and something that is held on it since long ago.
func newLease() (*lease.Lease, *Hold) {
	l := lease.New(lease.Origin{ID: 1, TTL: time.Hour}, func() time.Duration { return 0 })
	return l, &Hold{heldEntry: heldEntry{grant: &queue.Grant{Lease: l}}}
}

// What is held on one lease is not that of another one, before or after.
func TestRosterTellsTheHoldsOfALeaseFromOthers(t *testing.T) {
	t.Parallel()
	r := rosterAt(time.Hour)
	a, onA := newLease()
	b, onB := newLease()
	for i, c := range []struct {
		add         *Hold
		first, idle bool
	}{{onA, true, true}, {onA, false, false}, {onB, true, false}, {onB, false, false}} {
		if first, idle := r.add([]*Hold{c.add}); first != c.first || idle != c.idle {
			t.Errorf("%d: the first on its lease: %v; a goroutine is to be started: %v", i, first, idle)
		}
	}
	if len(r.on(a, true)) != 0 {
		t.Error("what is new was polled")
	}
	r.notePolled([]*Hold{onA, onB}, time.Hour)
	for l, h := range map[*lease.Lease]*Hold{a: onA, b: onB} {
		if on, polled := r.on(l, false), r.on(l, true); !slices.Equal(on, []*Hold{h}) || !slices.Equal(polled, on) {
			t.Errorf("%d holds on one lease, of which %d were polled", len(on), len(polled))
		}
	}
	if held, _ := r.ready(false); len(held) != 2 || len(r.on(a, true)) != 1 {
		t.Errorf("holds of %d leases are ready", len(held))
	}
	if r.ready(true); len(r.on(a, true)) != 0 {
		t.Error("what the bell has rung for counts as polled")
	}
	r.remove([]*Hold{onA, onB})
	if _, more := r.ready(false); more {
		t.Error("the goroutine goes on, and nothing is held")
	}
	if _, idle := r.add([]*Hold{onA}); !idle {
		t.Error("no goroutine is started for what is held afterwards")
	}
}

// A hold is due at the look that is nearest to the end of its interval, but not right after a poll that was not
// answered.
func TestHoldIsDueAtTheNearestLook(t *testing.T) {
	t.Parallel()
	const now, nearest = time.Hour, time.Hour + time.Second/4 // half a look later
	for name, c := range map[string]struct {
		watched, failing bool
		asked, sent      time.Duration
		due              bool
	}{
		"polled an interval ago":                 {asked: nearest - time.Second, due: true},
		"polled later":                           {asked: nearest - time.Second + 1},
		"watched, polled long ago":               {watched: true, asked: nearest - lease.SlowPoll, due: true},
		"watched, polled later":                  {watched: true, asked: nearest - lease.SlowPoll + 1},
		"never polled":                           {watched: true, asked: never, due: true},
		"the latest poll was not answered":       {failing: true, asked: never, sent: nearest - time.Second + 1},
		"the latest poll failed an interval ago": {failing: true, asked: never, sent: nearest - time.Second, due: true},
		"the latest poll was answered":           {asked: never, sent: now, due: true},
	} {
		r := rosterAt(now)
		l, h := newLease()
		l.SetWatched(c.watched)
		r.holds[h] = c.asked
		r.noteReply(c.sent, !c.failing)
		if due := r.due(map[*lease.Lease][]*Hold{l: {h}})[l]; (len(due) == 1) != c.due {
			t.Errorf("%s: %d are due", name, len(due))
		}
	}
}

func TestHoldIsReadyOnceItIsATickOld(t *testing.T) {
	t.Parallel()
	r := rosterAt(time.Hour)
	l, h := newLease()
	r.holds[h] = never
	for age, want := range map[time.Duration]int{r.tick - 1: 0, r.tick: 1} {
		h.grant.Stood = time.Hour - age
		if held, _ := r.ready(false); len(held[l]) != want {
			t.Errorf("%v after its request: %d are ready, want %d", age, len(held[l]), want)
		}
	}
}

func TestWhatWasReleasedIsNotDue(t *testing.T) {
	t.Parallel()
	r := rosterAt(time.Hour)
	l, h := newLease()
	if due := r.due(map[*lease.Lease][]*Hold{l: {h}})[l]; len(due) != 0 {
		t.Errorf("%d are due", len(due))
	}
}
