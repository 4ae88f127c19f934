package main

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

// A service manager signals holdfast and its command together: the command may have ended before its signal is read.
func TestSignalThatTheCommandDidNotGetEndsHoldfast(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &signals{cancel: cancel}
	got, stop, ok := s.forward()
	if !ok {
		t.Fatal("nothing is forwarded")
	}
	s.handle(syscall.SIGHUP)
	<-got // forwarded
	s.handle(syscall.SIGTERM)
	s.handle(syscall.SIGTERM) // the second one would end the process before it has released
	stop()
	var ended *signaled
	if !errors.As(context.Cause(ctx), &ended) || ended.signal != syscall.SIGTERM {
		t.Errorf("the context ended by %v", context.Cause(ctx))
	}
	if _, _, ok := s.forward(); ok {
		t.Error("another command would be started")
	}
}
