// Command holdfast runs commands under locks and elections in etcd, and shows who holds and who waits.
//
// "holdfast help" is its manual.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

func main() {
	sig, ctx := listen()
	err := newRoot(sig).ExecuteContext(ctx)
	os.Exit(report(ctx, err))
}

// report says what has failed and returns the exit code.
func report(ctx context.Context, err error) int {
	var ended *signaled
	if err != nil && errors.As(context.Cause(ctx), &ended) && !errors.As(err, new(*exitError)) {
		return exitSignal + int(ended.signal)
	}
	var exit *exitError
	if err != nil && (!errors.As(err, &exit) || exit.err != nil) {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
	}
	return exitCode(err)
}
