package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
)

// None holds while a dead claim is ahead: who went, and what ends the wait, is said instead.
func TestShowSaysWhatTheFirstEntryWaitsFor(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	dead := []admin.DeadClaim{{Lease: 0x694d, Revision: 10, LockDelay: 2 * time.Second, ToldWithin: 8 * time.Second}}
	entry := func(owner string, rev int64) admin.Entry {
		return admin.Entry{Key: "k" + owner, Owner: owner, QueuedAt: now, Revision: rev}
	}
	detached := entry("a", 8)
	detached.DetachedAt, detached.DetachedUntil = now, now.Add(time.Hour)
	unclaimed := entry("b", 12)
	unclaimed.Unclaimed = true
	for name, c := range map[string]struct {
		queue        admin.Queue
		want, unwant []string
	}{
		"behind it": {admin.Queue{Entries: []admin.Entry{entry("b", 12), entry("c", 14)}, Dead: dead},
			[]string{"nobody holds yet", "revision 10", "lease 694d", "2s, or up to 8s", "waiting   2", "     1  ", " b",
				" c"},
			[]string{"held by"}},
		"nobody waits": {admin.Queue{Dead: dead}, []string{"free", "revision 10", "lease 694d", "2s, or up to 8s"},
			[]string{"held by", "waiting"}},
		"a waiter was lost": {admin.Queue{Entries: []admin.Entry{entry("a", 8), entry("c", 14)}, Dead: dead},
			[]string{"held by   a", "waiting   1", " c"}, []string{"delay"}},
		"without a claim": {admin.Queue{Entries: []admin.Entry{unclaimed}}, []string{"held by   b", "claim     none"}, nil},
		"held": {admin.Queue{Entries: []admin.Entry{entry("b", 12)}}, []string{"held by   b"},
			[]string{"claim", "delay"}},
		"detached": {admin.Queue{Entries: []admin.Entry{detached, entry("c", 14)}},
			[]string{"detached  by a until 2026-01-31", "waiting   1"}, []string{"held by"}},
	} {
		c.queue.Kind, c.queue.Name = holdfast.KindLock, "x"
		text := strings.Join(describe(c.queue, 20, now, 0), "\n")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it lacks %q:\n%s", name, want, text)
			}
		}
		for _, unwanted := range c.unwant {
			if strings.Contains(text, unwanted) {
				t.Errorf("%s: it has %q:\n%s", name, unwanted, text)
			}
		}
	}
}

// The live view shows the next one as waiting from the loss on, until it holds.
func TestLiveViewShowsNoHolderDuringALockDelay(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	s := screen{queue: admin.Queue{Kind: holdfast.KindLock, Name: "x"}}
	a, b := admin.Entry{Key: "a", Owner: "a", Revision: 10}, admin.Entry{Key: "b", Owner: "b", Revision: 12}
	for _, step := range []struct {
		what  audit.Event
		entry admin.Entry
		holds string // "": none
	}{
		{admin.Queued, a, "a"}, {admin.Acquired, a, "a"}, {admin.Queued, b, "a"}, {audit.Lost, a, ""},
		{admin.Acquired, b, "b"},
	} {
		s.apply(admin.Event{What: step.what, Entry: step.entry}, now)
		if h, _ := s.queue.Holder(); h.Owner != step.holds {
			t.Errorf("after %s of %s %q is shown as the holder, want %q", step.what, step.entry.Owner, h.Owner, step.holds)
		}
	}
}
