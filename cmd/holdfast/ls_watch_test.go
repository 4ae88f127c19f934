package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
)

// queueOf is a lock with a holder, and waiters who have waited for so long.
func queueOf(name string, now time.Time, waits ...time.Duration) admin.Queue {
	q := admin.Queue{Kind: holdfast.KindLock, Name: name, Revision: 7}
	for i, d := range append([]time.Duration{time.Hour}, waits...) {
		q.Entries = append(q.Entries, admin.Entry{
			Key: fmt.Sprint(name, i), Owner: fmt.Sprint(name, "-", i), Revision: int64(i + 1), QueuedAt: now.Add(-d),
		})
	}
	return q
}

func TestLongestWaitComesFirst(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var all overview
	for _, q := range []admin.Queue{
		queueOf("idle-b", now), queueOf("short", now, time.Second), queueOf("idle-a", now),
		queueOf("long", now, 9*time.Minute, 10*time.Minute), queueOf("gone", now, time.Hour),
	} {
		all.apply(q)
	}
	all.lines(24, 80, now)
	all.apply(admin.Queue{Kind: holdfast.KindLock, Name: "gone"})
	lines := all.lines(24, 80, now)
	var names []string
	for _, line := range lines[2:] {
		fields := strings.Fields(line)
		names = append(names, fields[len(fields)-1])
	}
	if got := strings.Join(names, " "); got != "long short idle-a idle-b" {
		t.Errorf("%s:\n%s", got, strings.Join(lines, "\n"))
	}
	if got := strings.Join(strings.Fields(lines[2]), " "); got != "lock 10m00s 2 1h00m long-0 long" {
		t.Errorf("%q", lines[2])
	}
	if lines = all.lines(5, 80, now); len(lines) != 5 || !strings.Contains(lines[4], "and 2 more") {
		t.Errorf("in 5 rows:\n%s", strings.Join(lines, "\n"))
	}
}

func TestChangeSaysHolderAndLongestWait(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	q := queueOf("x", now, time.Minute)
	text, err := json.Marshal(asChangeJSON(q))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"kind":"lock","name":"x","revision":7,"held":true,"waiting":1,"waits_since":"2026-01-31T11:59:00Z"`,
		`"holder":{"key":"x0","owner":"x-0"`,
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s lacks %s", text, part)
		}
	}
	q.Dead = []admin.DeadClaim{{Revision: 0}}
	if line := changeLine(q, now); !strings.Contains(line, "a lock delay runs") {
		t.Error(line)
	}
	q.Entries = nil
	if text, _ = json.Marshal(asChangeJSON(q)); strings.Contains(string(text), "holder") ||
		strings.Contains(string(text), "since") {
		t.Errorf("free: %s", text)
	}
	if line := changeLine(q, now); !strings.Contains(line, "  free  x") {
		t.Error(line)
	}
	evil := queueOf("x", now)
	evil.Entries[0].Owner = "\x1b[2J"
	if line := changeLine(evil, now); strings.Contains(line, "\x1b") {
		t.Errorf("%q moves the cursor", line)
	}
}

// 10,000 names are put in order once for each picture, however many have changed.
func BenchmarkOverviewOf10000Names(b *testing.B) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var all overview
	for i := range 10_000 {
		all.apply(queueOf(fmt.Sprint("job/", i), now, time.Duration(i)*time.Second))
	}
	b.ReportAllocs()
	for b.Loop() {
		all.stale = true
		all.lines(50, 120, now)
	}
}
