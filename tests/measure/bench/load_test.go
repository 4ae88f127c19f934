package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// Callers of each kind are served on each side, at rest and beside busy loops, and what they send is counted.
func TestLoadIsServed(t *testing.T) {
	small := []load{
		{"holdfast", "Mutex", 12, 2, 1}, {"upstream", "Mutex", 12, 2, 1}, {"holdfast", "Mutex", 12, 2, 3},
		{"holdfast", "readers", 12, 2, 1}, {"holdfast", "semaphore of 25", 12, 2, 1},
	}
	var out strings.Builder
	if err := measureLoads(t.Context(), small, time.Minute, &out); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	row := regexp.MustCompile(`(?m)^\| .* \| 12, .* \| 12 \| \d+\.\d \| [1-9]\d*\.\d\d \| 0 \| (yes|–) \|$`)
	if n := len(row.FindAllString(out.String(), -1)); n != 2*len(small) {
		t.Errorf("%d of %d loads were served as they should be", n, 2*len(small))
	}
}
