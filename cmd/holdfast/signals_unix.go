//go:build unix

package main

import (
	"os"
	"syscall"
)

var endingSignals = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}

// otherSignals are forwarded to a command, and do nothing otherwise. SIGPIPE is among them because Go ends a program
// that writes to a closed stderr; the command gets its own.
var otherSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE}
