//go:build unix

package main

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

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
	out := demotest.Output(t)
	checkOutput(t, out)

	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(withoutNumbers(string(readme)), withoutNumbers(out)) {
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
	checkOutput(t, demotest.Output(t, "--endpoints", strings.Join(cluster.Endpoints(), ",")))
	if kvs := cluster.Keys(t, ""); len(kvs) > 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

func TestQuickstartNamesTheStepThatFailed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	srv.Stop()
	out, stderr, code := demotest.Start(t, "--endpoints", srv.Endpoints()[0], "--patience", "200ms").Wait()
	if code != 1 {
		t.Fatalf("exit code %d, want 1\n%s%s", code, out, stderr)
	}
	if want := "step 1 of 16 was not observed: etcd answers"; !strings.Contains(stderr, want) {
		t.Errorf("stderr lacks %q:\n%s", want, stderr)
	}
}

func TestInterruptEndsBothWorkersOneOfThemStopped(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := demotest.Start(t, "--endpoints", srv.Endpoints()[0])
	var workers []int
	for _, line := range []string{` process (\d+) acquires`, ` process (\d+) wants the lock`} {
		pid, _ := strconv.Atoi(p.Await(t, line)[1])
		workers = append(workers, pid)
	}
	p.Await(t, "SIGSTOP to A")
	p.Signal(t, os.Interrupt)
	out, stderr, code := p.Wait()
	if code != 1 {
		t.Fatalf("exit code %d, want 1\n%s%s", code, out, stderr)
	}
	if !strings.Contains(stderr, "interrupted: step 6 of 16 was not observed: B acquires the lock") {
		t.Errorf("stderr does not name the step that was interrupted:\n%s", stderr)
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
