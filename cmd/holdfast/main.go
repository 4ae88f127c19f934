// Command holdfast runs commands under locks and elections in etcd, and shows who holds and who waits.
//
// "holdfast help" is its manual.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signalContext()
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	os.Exit(report(ctx, err))
}

// signalContext ends with the first signal that asks holdfast to end.
func signalContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	go func() { // ends with the process
		cancel(&signaled{(<-got).(syscall.Signal)})
		signal.Stop(got) // the second one ends holdfast at once
	}()
	return ctx, func() { cancel(nil) }
}

// signaled is the cause of a context that a signal has ended.
type signaled struct{ signal syscall.Signal }

func (s *signaled) Error() string { return s.signal.String() }

// report says what has failed and returns the exit code.
func report(ctx context.Context, err error) int {
	var signal *signaled
	if err != nil && errors.As(context.Cause(ctx), &signal) && !errors.As(err, new(*exitError)) {
		return exitSignal + int(signal.signal)
	}
	var exit *exitError
	if err != nil && (!errors.As(err, &exit) || exit.err != nil) {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
	}
	return exitCode(err)
}
