//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// runMain in the environment makes this test binary run main: so the tests see real processes, parent and workers,
// built with the race detector.
const runMain = "QUICKSTART_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func quickstart(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, stderr = exec.CommandContext(t.Context(), self, args...), new(bytes.Buffer)
	cmd.Env = append(os.Environ(), runMain+"=1")
	cmd.Stderr = stderr
	return cmd, stderr
}

// essential are the lines that the output must have, in this order.
var essential = []string{
	`A +process \d+ acquires the lock +\d+$`,
	`A +writes guarded = "from A" and unguarded = "from A" +\d+$`,
	`B +process \d+ wants the lock and waits behind A$`,
	`parent +SIGSTOP to A`,
	`B +acquires the lock: A's lease has expired in etcd +\d+$`,
	`B +writes guarded = "from B" and unguarded = "from B" +\d+$`,
	`parent +SIGCONT to A`,
	`A +Check: lost \(expired\) +\d+$`,
	`A +writes guarded: REFUSED by its writer \(lost\); nothing is sent +\d+$`,
	`A +.*: REFUSED by etcd \(stale\) +\d+$`,
	`A +writes unguarded = "from A, too late": ACCEPTED, no token is compared$`,
	`etcd +guarded = "from B": `,
	`etcd +unguarded = "from A, too late": `,
	`B +Check: still held; unlocks +\d+$`,
	`parent +both workers have exited; the lock's queue in etcd is empty$`,
	`^All \d+ steps were observed, in [\d.]+ s\.$`,
}

func TestQuickstartPrintsWhatItsREADMEShows(t *testing.T) {
	t.Parallel()
	cmd, stderr := quickstart(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", stderr)
	}
	checkOutput(t, string(out))

	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(withoutNumbers(string(readme)), withoutNumbers(string(out))) {
		t.Errorf("README.md shows another output; paste this one:\n%s", out)
	}
}

// withoutNumbers replaces numbers, which differ from run to run, and the blanks before them.
func withoutNumbers(s string) string {
	return regexp.MustCompile(` *\d[\d.]*`).ReplaceAllString(s, " #")
}

func checkOutput(t *testing.T, out string) {
	t.Helper()
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
	tokens := regexp.MustCompile(`(?m)acquires the lock.* (\d+)$`).FindAllStringSubmatch(out, -1)
	first, _ := strconv.Atoi(tokens[0][1])
	second, _ := strconv.Atoi(tokens[1][1])
	if first <= 0 || second <= first {
		t.Errorf("tokens %d and %d: the second must be larger", first, second)
	}
}

func TestQuickstartLeavesNothingInAClusterOfTheUser(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3)
	cmd, stderr := quickstart(t, "--endpoints", strings.Join(cluster.Endpoints(), ","))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	checkOutput(t, string(out))
	if kvs := cluster.Keys(t, ""); len(kvs) > 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

func TestQuickstartNamesTheStepThatFailed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	srv.Stop()
	cmd, stderr := quickstart(t, "--endpoints", srv.Endpoints()[0], "--patience", "200ms")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("%v, want exit code 1\n%s%s", err, out, stderr)
	}
	if want := "step 1 of 16 was not observed: etcd answers"; !strings.Contains(stderr.String(), want) {
		t.Errorf("stderr lacks %q:\n%s", want, stderr)
	}
}

func TestInterruptEndsBothWorkersOneOfThemStopped(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cmd, stderr := quickstart(t, "--endpoints", srv.Endpoints()[0])
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var workers []int
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if m := regexp.MustCompile(` process (\d+) `).FindStringSubmatch(lines.Text()); m != nil {
			pid, _ := strconv.Atoi(m[1])
			workers = append(workers, pid)
		}
		if strings.Contains(lines.Text(), "SIGSTOP to A") {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(stdout)
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("%v, want exit code 1\n%s%s", err, rest, stderr)
	}
	if !strings.Contains(stderr.String(), "interrupted: step 6 of 16 was not observed: B acquires the lock") {
		t.Errorf("stderr does not name the step that was interrupted:\n%s", stderr)
	}
	if len(workers) != 2 {
		t.Fatalf("saw workers %v, want two", workers)
	}
	for _, pid := range workers {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("worker %d still exists: %v", pid, err)
		}
	}
	if kvs := srv.Keys(t, "quickstart/"); len(kvs) > 0 {
		t.Errorf("left behind: %v", kvs)
	}
}
