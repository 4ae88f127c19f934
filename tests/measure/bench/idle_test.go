package main

import (
	"regexp"
	"testing"
	"time"
)

// Each side has a session, and then a lock. Its goroutines are its own: those of its client are not counted.
func TestIdleProcessesAreMeasuredBesideUpstream(t *testing.T) {
	table, err := idlePlan{processes: 2, settle: time.Second, window: 4 * time.Second}.idle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(table)
	for _, want := range []string{"holdfast with a session", "holdfast and holds a lock", "upstream with a session",
		"upstream and holds a lock"} {
		row := `\| of ` + want + ` \| [1-9]\d*\.\d \| -?\d+ KB \| \d+\.\d\d \|`
		if !regexp.MustCompile(row).MatchString(table) {
			t.Errorf("no row like %s in\n%s", row, table)
		}
	}
}
