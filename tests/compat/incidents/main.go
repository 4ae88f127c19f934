// Command incidents repeats failures that were reported in public, each in seconds, on an etcd in this process: first
// the client that failed, or a small model of it, and then holdfast in the same situation. README.md says what each is.
//
//	go run ./tests/compat/incidents                    # all
//	go run ./tests/compat/incidents loss-told-late     # one
//
// It exits with 1 if holdfast failed, or if what failed in public did not fail.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout))
}

// command runs the incidents with these names, or all.
func command(ctx context.Context, names []string, out io.Writer) (code int) {
	for _, name := range names {
		if !slices.ContainsFunc(incidents, func(i incident) bool { return i.name == name }) {
			fmt.Fprintf(out, "incidents: there is none called %q; there are:\n", name)
			for _, i := range incidents {
				fmt.Fprintf(out, "  %s\n", i.name)
			}
			return 2
		}
	}
	for _, i := range incidents {
		if len(names) > 0 && !slices.Contains(names, i.name) {
			continue
		}
		theirs, ours, err := i.run(ctx)
		if err != nil {
			fmt.Fprintf(out, "%s: %v\n", i.name, err)
			return 2
		}
		fmt.Fprintf(out, "%s: %s\n  %s: %v\n  holdfast: %v\n\n", i.name, i.what, i.other, theirs, ours)
		if !theirs.failed || ours.failed {
			code = 1
		}
	}
	return code
}
