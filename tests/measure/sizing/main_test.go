//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// Each row has the leases, keys and watches that the guide derives: two leases, a key and a watch for a session, an
// entry and its claim for each lock and each waiter, and a watch for the latter. Each client's memory and goroutines
// are its own alone.
func TestRowsHaveWhatTheFleetHas(t *testing.T) {
	var out bytes.Buffer
	p := plan{processes: 5, locks: 2, window: 100 * time.Millisecond, busy: 2}
	if err := run(t.Context(), &out, p); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "--- |\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	for i, want := range []string{"| a session | 10 | 5 | 5 |", "| and holds 2 | 10 | 25 | 5 |",
		"| and waits for 1 | 10 | 35 | 10 |", "| 2 lock and unlock | 10 | "} {
		if len(rows) != 4 || !strings.HasPrefix(rows[i], want) {
			t.Fatalf("row %d does not begin with %q:\n%s", i, want, out.String())
		}
	}
	if cells := strings.Split(rows[0], "|"); strings.TrimSpace(cells[7]) != "0" || strings.TrimSpace(cells[14]) == "0.0" {
		t.Errorf("sessions alone write nothing, and have goroutines: %s", rows[0])
	}
	if cells := strings.Split(rows[3], "|"); strings.TrimSpace(cells[7]) == "0" {
		t.Errorf("those that lock and unlock write: %s", rows[3])
	}
}

func TestRowsOfUpstream(t *testing.T) {
	var out bytes.Buffer
	p := plan{processes: 3, locks: 2, window: 100 * time.Millisecond, upstream: true}
	if err := run(t.Context(), &out, p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a session of upstream | 3 | 0 | 0 |", "| and holds 2 | 3 | 6 | 0 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no row begins with %q:\n%s", want, out.String())
		}
	}
}
