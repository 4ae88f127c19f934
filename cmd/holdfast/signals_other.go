//go:build !unix

package main

import (
	"os"
	"syscall"
)

var (
	endingSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
	otherSignals  []os.Signal
)
