//go:build unix

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

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
	if out := demotest.Output(t); !essential.MatchString(out) {
		t.Errorf("the output lacks a line:\n%s", out)
	}
}

func TestSqlfenceLeavesNothingInTheDatabase(t *testing.T) {
	t.Parallel()
	dsn, id := "sqlite://"+filepath.Join(t.TempDir(), "own.db"), "check"
	demotest.Output(t, "--dsn", dsn)
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
	out, stderr, code := demotest.Start(t, "--dsn", dsn).Wait()
	if want := "step 1 of 14 was not observed: the tables are created"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr lacks %q\n%s%s", code, want, out, stderr)
	}
	out, stderr, code = demotest.Start(t, "--dsn", "oracle://x").Wait()
	if code != 1 || !strings.Contains(stderr, "--dsn") {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
}
