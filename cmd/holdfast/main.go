// Command holdfast runs commands under locks and elections in etcd, and shows who holds and who waits.
//
// "holdfast help" is its manual.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	if outputIsClosed(err) {
		return exitSignal + int(syscall.SIGPIPE)
	}
	var exit *exitError
	if err != nil && (!errors.As(err, &exit) || exit.err != nil) {
		fmt.Fprintln(os.Stderr, "holdfast:", strings.TrimPrefix(err.Error(), "holdfast: "))
		if hint := hintFor(err); hint != "" {
			fmt.Fprintln(os.Stderr, "holdfast:", hint)
		}
	}
	return exitCode(err)
}

// outputIsClosed reports whether the reader of our output has left, as "head" does.
func outputIsClosed(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed) && failed.Path == os.Stdout.Name() && errors.Is(failed.Err, syscall.EPIPE)
}

// hintFor says what to do about an error of etcd that does not say so itself.
func hintFor(err error) string {
	switch {
	case strings.Contains(err.Error(), "holdfast check"):
		return ""
	case errors.Is(err, rpctypes.ErrNoSpace):
		return "the store of etcd is full: \"holdfast check\" says what to do; " +
			"keys can be deleted and leases revoked all the same"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "\"holdfast check\" with --for and this user tells which permission is missing"
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return "this etcd wants a user: see \"holdfast help connection\""
	default:
		return ""
	}
}
