// Package leak runs the tests of a package and fails if they leave goroutines.
package leak

import (
	"os"
	"syscall"

	"go.uber.org/goleak"
)

// Main runs the tests, looks for goroutines that they have left, calls cleanup, and exits. TestMain calls it.
//
// Before a program exits, the race detector waits a second for races of goroutines that still run. Here none does, so
// Main exits without it, and so do the processes that the tests start.
func Main(m goleak.TestingM, cleanup ...func()) { verify(m, cleanup) }

// MainBut is Main where a library keeps goroutines of these functions for good.
func MainBut(m goleak.TestingM, functions ...string) {
	var ignored []goleak.Option
	for _, f := range functions {
		ignored = append(ignored, goleak.IgnoreAnyFunction(f))
	}
	verify(m, nil, ignored...)
}

func verify(m goleak.TestingM, cleanup []func(), options ...goleak.Option) {
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, append(options, goleak.Cleanup(func(code int) {
		for _, f := range cleanup {
			f()
		}
		syscall.Exit(code) // os.Exit would wait
	}))...)
}
