package oracle

import (
	"testing"
	"time"
)

func TestCalmIsWhatNoFaultCovers(t *testing.T) {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	j := &judge{faults: make(map[faultsKey][]Fault), Record: &Record{Faults: []Fault{
		{Process: "a", From: second(2), To: second(4)},
		{Process: "a", From: second(3), To: second(5)},
		{Process: "b", From: second(6), To: second(7)},
		{From: second(8), To: second(9)},
		{Process: Everywhere, From: second(12), To: second(13)},
		{Process: "c", From: second(20), To: second(22), NoQuorum: true},
	}}}
	for name, c := range map[string]struct {
		process      string
		from, to     int
		longest, sum int
	}{
		"no fault":            {"a", 6, 8, 2, 2},
		"before and after":    {"a", 0, 8, 3, 5},
		"within a fault":      {"a", 3, 4, 0, 0},
		"begins in a fault":   {"a", 4, 7, 2, 2},
		"ends in a fault":     {"a", 0, 3, 2, 2},
		"of the cluster":      {"c", 7, 11, 2, 3},
		"of all processes":    {"c", 10, 15, 2, 4},
		"another process has": {"b", 5, 8, 1, 2},
		"nothing":             {"a", 5, 5, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			longest, sum := j.calm(c.process, andCluster, second(c.from), second(c.to))
			if longest != second(c.longest) || sum != second(c.sum) {
				t.Errorf("%v and %v, want %d s and %d s", longest, sum, c.longest, c.sum)
			}
		})
	}
	if _, sum := j.calm("c", own, second(20), second(23)); sum != second(1) || j.disturbed("c", second(20), second(23)) {
		t.Errorf("%v of three seconds are calm, of which two had no quorum", sum)
	}
	j.Sick = []Fault{{From: second(9), To: second(10)}}
	if _, sum := j.calm("c", andSick, second(7), second(11)); sum != second(2) {
		t.Errorf("%v without the cluster's fault and that of a member", sum)
	}
	if j.disturbed("c", second(7), second(10)) || !j.disturbed("c", second(12), second(14)) {
		t.Error("a fault of the cluster disturbs no process, one of all processes does")
	}
	if since := j.calmSince("a", second(1), second(3)); since != second(4) {
		t.Errorf("calm since %v", since)
	}
}
