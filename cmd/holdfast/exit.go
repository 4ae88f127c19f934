package main

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
)

// The exit codes of holdfast itself. A command that holdfast has run passes its own through.
const (
	exitOther       = 1
	exitUsage       = 64  // as in sysexits.h
	exitUnavailable = 69  // as in sysexits.h
	exitNotAcquired = 75  // as in sysexits.h: try again later
	exitDenied      = 77  // as in sysexits.h
	exitLost        = 79  // the first that sysexits.h leaves free
	exitMaxHold     = 124 // as of timeout(1)
	exitCannotRun   = 126 // as of the shell
	exitNotFound    = 127 // as of the shell
	exitSignal      = 128 // plus the signal's number, as of the shell
)

const exitHelp = `The exit codes of holdfast:

    0      done; of "run" and "elect": the command's own
    1      an error that is none of the following; of "check": not fit
    64     wrong usage: a flag, an argument, a name
    69     etcd cannot be reached, or did not answer in time
    75     not acquired: --try found the lock held, or others are still ahead after
           --wait ("run" can exit with another, --skip-code); of "kick": the holder
           has not let go within --wait, or there is no holder yet; of "shards
           resize": members run
    77     etcd refused the user, the password or the permission
    79     the lock or term was lost, was about to be, or was kicked: the command was
           stopped
    124    the command was stopped after --max-hold
    126    the command cannot be executed
    127    the command was not found
    128+n  the command, or holdfast before it ran one, was ended by signal n

"run" and "elect" exit with the command's own code, whatever it is, unless
holdfast has stopped the command. A script that must tell the two apart lets its
command use the codes 2 to 63.
`

// exitError is an error with the exit code that it leads to.
type exitError struct {
	code int
	err  error // nil: nothing is to be said
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode is the code that an error leads to.
func exitCode(err error) int {
	var exit *exitError
	var argument *holdfast.ArgumentError
	var name *holdfast.NameError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &argument), errors.As(err, &name):
		return exitUsage
	case errors.Is(err, rpctypes.ErrPermissionDenied), etcderr.Classify(err) == etcderr.Unauthorized:
		return exitDenied
	case errors.Is(err, etcderr.ErrNotConnected), errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable
	default:
		return exitOther
	}
}
