//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/tests/models/modeltrace"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

func TestRecoveryCountsFromTheLastFaultBeforeTheNextAcquisition(t *testing.T) {
	rec := heldFrom(30*time.Second, 40*time.Second)
	faultOf := func(process string, from, to time.Duration) {
		rec.Faults = append(rec.Faults, fault{"a fault", oracle.Fault{Process: process, From: from, To: to}})
	}
	faultOf("process 0", 10*time.Second, 20*time.Second) // until 28 s nothing can be acquired
	faultOf("", 19*time.Second, 28*time.Second)
	faultOf("process 1", 12*time.Second, 35*time.Second)
	faultOf("", 41*time.Second, 42*time.Second) // nothing is acquired any more
	s := newSummary(options{})
	s.addRecoveries(rec)
	if got := s.Recoveries; got.Count != 3 || int(got.Longest) != 5 || got.total.Round(time.Second) != 9*time.Second {
		t.Errorf("%+v, want 2 + 2 + 5 seconds", got)
	}
}

func TestTimesOfABusyMachineCountOnce(t *testing.T) {
	faults := []oracle.Fault{
		{Process: oracle.Everywhere, From: 3 * time.Second, To: 5 * time.Second},
		{Process: "", From: 0, To: time.Hour},
		{Process: oracle.Everywhere, From: 1 * time.Second, To: 4 * time.Second},
		{Process: oracle.Everywhere, From: 10 * time.Second, To: 11 * time.Second},
	}
	if got := busyTime(faults); got != 5*time.Second {
		t.Errorf("%v, want 5s", got)
	}
}

func TestSummaryHasWhatTheRoundsHad(t *testing.T) {
	s := newSummary(options{seed: 9})
	s.stats.Counts[oracle.Granted] = 3
	s.stats.Counts[oracle.LostPrefix+"by a test"] = 2
	s.stats.Counts[faultPrefix+"a fault"] = 4
	s.stats.Counts[overruns] = 5
	s.stats.Counts[outlived] = 6
	s.stats.Counts[modeltrace.Followed] = 71
	s.stats.Counts[modeltrace.Permits+modeltrace.Followed] = 72
	s.stats.Counts[modeltrace.Permits+refusedSteps] = 73
	s.stats.Counts[modeltrace.Permits+modeltrace.Stopped+"a reason"] = 74
	s.stats.Counts[oracle.OverlapPrefix+"a reason"] = 1
	s.stats.Counts[oracle.ByForcePrefix+oracle.ByRevocation.String()] = 81
	s.stats.Counts[oracle.NewcomersPrefix+oracle.ByRevocation.String()] = 82
	s.stats.Counts[oracle.TwoHeldPrefix+oracle.ByRevocation.String()] = 83
	s.stats.Counts[oracle.NewcomersOfPrefix+"permit"] = 84
	s.stats.Counts[oracle.TwoHeldOfPrefix+"permit"] = 85
	s.stats.Counts[crowds] = 960
	s.OfMachine = []string{"it told late"}
	s.stats.Worst[oracle.OverlapPrefix+"a reason, at most"] = time.Second
	s.stats.Worst[oracle.MarginPrefix+"a cause, at least"] = 2 * time.Second
	s.fill()
	if s.Acquisitions != 3 || s.losses() != 2 || s.faults() != 4 || s.Margins["a cause"] != 2 ||
		s.Overlaps["a reason"] != (overlap{1, 1}) {
		t.Errorf("%+v", s)
	}
	for _, want := range []string{"seed 9", "3 acquisitions", "2 by a test", "4 a fault", "2.000 s a cause",
		"OnOverrun was called 5 times", "for each of 6 functions", "71 entries to their ends", "72 permits to their ends",
		"81 holds, 82 of them with a newcomer within 200 ms, two held 83 times", "permit 84, two held 85 times",
		"960 callers, 0 of them held",
		"did not run: 1\n  it told late", "which wait for the disk: false",
		"73 refused\npermits that were not followed to their ends: 74"} {
		if !strings.Contains(s.String(), want) {
			t.Errorf("the summary is without %q:\n%v", want, s)
		}
	}
}
