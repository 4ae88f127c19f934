//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// runMain in the environment makes this test binary the program itself, so that
// the tests see real processes, under the race detector.
const runMain = "LEADER_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func leader(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), runMain+"=1")
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// essential are the lines without which the story is not told, in their order.
var essential = []string{
	`observer +nobody leads$`,
	`A +is elected \(process \d+\): nobody was ahead +\d+$`,
	`observer +A leads +\d+$`,
	`B +process \d+ queues behind A$`,
	`C +process \d+ queues behind B$`,
	`parent +SIGKILL to A`,
	`B +is elected \(process \d+\): etcd has expired the lease of A +\d+$`,
	`observer +B leads +\d+$`,
	`A +process \d+ queues behind C$`,
	`parent +SIGTERM to B`,
	`B +has finished its work, still leading; now it resigns +\d+$`,
	`C +is elected \(process \d+\): B has resigned +\d+$`,
	`parent +SIGKILL to C`,
	`A +is elected \(process \d+\): etcd has expired the lease of C +\d+$`,
	`observer +A leads +\d+$`,
	`observer +nobody leads$`,
	`the last write is that of the last leader$`,
	`^All \d+ steps were observed, in [\d.]+ s\.$`,
}

func TestTermsMoveAndNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	out, stderr, err := leader(t, "--endpoints", strings.Join(srv.Endpoints(), ","))
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	rest := strings.Split(out, "\n")
next:
	for _, pattern := range essential {
		for i, line := range rest {
			if regexp.MustCompile(pattern).MatchString(line) {
				rest = rest[i+1:]
				continue next
			}
		}
		t.Fatalf("no line like %q where it belongs in:\n%s", pattern, out)
	}
	if kvs := srv.Keys(t, ""); len(kvs) > 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

func TestAStepThatIsNotObservedIsNamedAndFails(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	srv.Stop() // its address answers nothing
	out, stderr, err := leader(t, "--endpoints", srv.Endpoints()[0], "--patience", "200ms")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Fatalf("%v, want exit code 1\n%s%s", err, out, stderr)
	}
	if want := "step 1 of 11 was not observed: an observer sees that nobody leads"; !strings.Contains(stderr, want) {
		t.Errorf("stderr lacks %q:\n%s", want, stderr)
	}
}
