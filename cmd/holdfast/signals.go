package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signaled is the cause of a context that a signal has ended.
type signaled struct{ signal syscall.Signal }

func (s *signaled) Error() string { return s.signal.String() }

// signals are those that holdfast gets. They end its context, or go to the command that it runs.
type signals struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex // protects the rest
	ended bool       // a signal has ended the context
	to    chan<- os.Signal
}

// listen begins to listen, until the process ends. A signal that was ignored when holdfast was started, as by nohup,
// stays ignored.
func listen() (*signals, context.Context) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &signals{cancel: cancel}
	got := make(chan os.Signal, 16)
	for _, sig := range append(endingSignals, otherSignals...) {
		if !signal.Ignored(sig) {
			signal.Notify(got, sig)
		}
	}
	go func() { // ends with the process
		for sig := range got {
			s.handle(sig)
		}
	}()
	return s, ctx
}

func (s *signals) handle(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(sig)
}

func (s *signals) take(sig os.Signal) {
	switch {
	case sig == syscall.SIGPIPE: // ours
	case s.to != nil:
		select {
		case s.to <- sig:
		default: // 16 have not been forwarded yet
		}
	case isEnding(sig) && s.ended:
		os.Exit(exitSignal + int(sig.(syscall.Signal))) // asked for twice: at once
	case isEnding(sig):
		s.ended = true
		s.cancel(&signaled{sig.(syscall.Signal)})
	}
}

// forward returns a channel to which signals go until stop is called, or false if one has ended the context before. One
// that is still in the channel then has come too late for the command, and is ours.
func (s *signals) forward() (got <-chan os.Signal, stop func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, false
	}
	to := make(chan os.Signal, 16)
	s.to = to
	return to, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.to = nil
		for !s.ended && len(to) > 0 {
			s.take(<-to)
		}
	}, true
}

func isEnding(sig os.Signal) bool {
	for _, ending := range endingSignals {
		if sig == ending {
			return true
		}
	}
	return false
}
