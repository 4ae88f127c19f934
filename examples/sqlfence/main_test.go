//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runMain in the environment makes this test binary run main: so the tests see real processes, parent and workers,
// built with the race detector.
const runMain = "SQLFENCE_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) (stdout, stderr string, exitCode int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	var said strings.Builder
	cmd.Env, cmd.Stderr = append(os.Environ(), runMain+"=1"), &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), said.String(), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), said.String(), 0
}

// essential are the lines that the output must have, in this order.
var essential = regexp.MustCompile(`(?s)` + strings.Join([]string{
	`A +process \d+ acquires the lock +\d+\n`,
	`A +UPDATE guarded and unguarded: "from A" +\d+\n`,
	`B +process \d+ waits behind A\n`,
	`parent +SIGSTOP to A`,
	`B +acquires the lock: A's lease has expired in etcd +\d+\n`,
	`B +UPDATE guarded and unguarded: "from B" +\d+\n`,
	`parent +SIGCONT to A`,
	`A +UPDATE guarded: REFUSED by the guard \(lost\); nothing is sent +\d+\n`,
	`A +the same .*: REFUSED by the database, mark is \d+ +\d+\n`,
	`A +UPDATE unguarded: ACCEPTED`,
	`database +guarded = "from B"`,
	`database +unguarded = "from A, too late"`,
	`All 14 steps were observed`,
}, `.*`))

func TestDatabaseRefusesTheLateUpdate(t *testing.T) {
	t.Parallel()
	out, stderr, code := program(t)
	if code != 0 || stderr != "" || !essential.MatchString(out) {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
}

func TestSqlfenceLeavesNothingInTheDatabase(t *testing.T) {
	t.Parallel()
	dsn, id := "sqlite://"+filepath.Join(t.TempDir(), "own.db"), "check"
	if out, stderr, code := program(t, "--dsn", dsn); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	d, err := open(dsn, id)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var tables int
	if err := d.QueryRow("SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables, %v", tables, err)
	}
}

func TestSqlfenceNamesTheStepThatFailed(t *testing.T) {
	t.Parallel()
	dsn := "sqlite://" + filepath.Join(t.TempDir(), "no", "such", "directory.db")
	out, stderr, code := program(t, "--dsn", dsn)
	if want := "step 1 of 14 was not observed: the tables are created"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr lacks %q\n%s%s", code, want, out, stderr)
	}
	if _, stderr, code := program(t, "--dsn", "oracle://x"); code != 1 || !strings.Contains(stderr, "--dsn") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}
