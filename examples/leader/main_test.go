//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

// essential are the lines that the output must have, in this order.
var essential = []string{
	`observer +there is no leader$`,
	`A +is elected \(process \d+\): the queue was empty +\d+$`,
	`observer +A leads +\d+$`,
	`B +process \d+ queues behind A$`,
	`C +process \d+ queues behind B$`,
	`parent +SIGKILL to A`,
	`B +is elected \(process \d+\): A's lease has expired in etcd +\d+$`,
	`observer +B leads +\d+$`,
	`A +process \d+ queues behind C$`,
	`parent +SIGTERM to B`,
	`B +has finished its work while it still led; now it resigns +\d+$`,
	`C +is elected \(process \d+\): B has resigned +\d+$`,
	`parent +SIGKILL to C`,
	`A +is elected \(process \d+\): C's lease has expired in etcd +\d+$`,
	`observer +A leads +\d+$`,
	`observer +there is no leader$`,
	`the last write is the last leader's$`,
	`^All \d+ steps were observed, in [\d.]+ s\.$`,
}

func TestLeadershipPassesOnAndNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	out := demotest.Output(t, "--endpoints", strings.Join(srv.Endpoints(), ","))
	rest := strings.Split(out, "\n")
next:
	for _, pattern := range essential {
		for i, line := range rest {
			if regexp.MustCompile(pattern).MatchString(line) {
				rest = rest[i+1:]
				continue next
			}
		}
		t.Fatalf("no line matches %q at its place in:\n%s", pattern, out)
	}
	if kvs := srv.Keys(t, ""); len(kvs) > 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

func TestLeaderNamesTheStepThatFailed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	srv.Stop()
	out, stderr, code := demotest.Start(t, "--endpoints", srv.Endpoints()[0], "--patience", "200ms").Wait()
	if code != 1 {
		t.Fatalf("exit code %d, want 1\n%s%s", code, out, stderr)
	}
	if want := "step 1 of 11 was not observed: the observer sees no leader"; !strings.Contains(stderr, want) {
		t.Errorf("stderr lacks %q:\n%s", want, stderr)
	}
}
