//go:build linux

package robustness

import (
	"fmt"
	"testing"
)

// A finding is what a measurement of real time has shown: of holdfast, and of the machine in the same moment, by
// clients that do without holdfast.
type finding struct {
	wrong string // what holdfast must not do, or ""
	slow  string // why that may be the machine's fault, or "" if it was quick enough
}

// measure takes a measurement of real time. If what is wrong may be the fault of the machine, it measures again, with a
// cluster of its own each time. A machine that is too slow each time fails the test, too: nothing has been shown.
func measure(t *testing.T, measurement func(t *testing.T) finding) {
	t.Helper()
	const most = 3
	for n := range most {
		var f finding
		ok := t.Run(fmt.Sprint("measurement ", n+1), func(t *testing.T) { f = measurement(t) })
		switch {
		case !ok || f.wrong == "": // it has told itself what is wrong, or nothing is
			return
		case f.slow == "":
			t.Error(f.wrong)
			return
		}
		t.Logf("the machine is too slow: %s; and %s", f.slow, f.wrong)
	}
	t.Errorf("the machine was too slow for each of %d measurements: run this test with less beside it", most)
}
