//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/tests/oracle"
)

func TestProcessThatDidNotRunMayBeLate(t *testing.T) {
	const from, to = 10 * time.Second, 20 * time.Second
	rec := &recorded{
		Record: &oracle.Record{Faults: []oracle.Fault{
			{Process: oracle.Everywhere, From: time.Minute, To: time.Minute + time.Second},
			{Process: "process 0", From: 0, To: time.Hour}, // its connections are slow
		}},
		gaps: []oracle.Fault{
			{Process: "process 0", From: from, To: to}, {Process: "process 2", From: from, To: from + gapsOfALate/2},
			{Process: "process 2", From: to, To: to + gapsOfALate/2},
		},
	}
	for _, c := range []struct {
		process string
		when    time.Duration
		want    bool
	}{
		{"process 0", from - 1, false}, {"process 0", to + afterStall, true}, {"process 0", to + afterStall + 1, false},
		{"process 2", from + afterStall, false}, {"process 2", to + afterStall, false},
		{"process 1", to, false}, {"process 1", time.Minute, true},
	} {
		if got := rec.mayBeLate(said{Process: c.process, When: c.when}); got != c.want {
			t.Errorf("%s at %v: %v, want %v", c.process, c.when, got, c.want)
		}
	}
}
