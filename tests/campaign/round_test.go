package main

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/tests/oracle"
)

// What does not come about in time is a failure, unless the machine was too busy for a quarter of that time.
func TestOnlyABusyMachineExcusesWhatDoesNotComeAbout(t *testing.T) {
	const ago = time.Minute
	for name, c := range map[string]struct {
		busy    time.Duration // at the end; twice as long before all faults had ended, which does not count
		err     error
		excused bool
	}{
		"never busy":           {0, &tooLate{"x"}, false},
		"busy for a tenth":     {ago / 10, &tooLate{"x"}, false},
		"busy for a third":     {ago / 3, &tooLate{"x"}, true},
		"busy, another reason": {ago / 3, errors.New("the process wrote to stderr"), false},
	} {
		now := sinceBoot()
		f := &round{healed: now - ago, stats: oracle.NewStats(), history: &history{starved: []oracle.Fault{
			{Process: oracle.Everywhere, From: now - ago - 2*c.busy, To: now - ago},
			{Process: oracle.Everywhere, From: now - c.busy, To: now},
		}}}
		f.notCome(c.err)
		if n := f.stats.Counts[notJudged]; (n == 1) != c.excused || (len(f.failures) == 0) != c.excused {
			t.Errorf("%s: excused %d times, failures %q", name, n, f.failures)
		}
	}
}
