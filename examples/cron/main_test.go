package main

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

const lastRun = "holdfast/lock/" + lockName + "/@run"

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestEachSlotRunsOnce(t *testing.T) {
	t.Parallel()
	out := demotest.Output(t)
	demotest.CheckShown(t, out, false, `\b[ABC]\b`)
	runs, finds := make(map[string]int), make(map[string]int)
	for line := range strings.Lines(out) {
		switch fields := strings.Fields(line); {
		case strings.Contains(line, "runs the job"):
			runs[fields[2]]++
		case strings.Contains(line, "finds that it has been run"):
			finds[fields[2]]++
		}
	}
	for slot, n := range runs {
		if n != 1 || finds[slot] != 2 {
			t.Errorf("slot %s was run %d times and found to have been run %d times", slot, n, finds[slot])
		}
	}
	if len(runs) != 3 {
		t.Errorf("%d slots were run, want 3:\n%s", len(runs), out)
	}
}

func TestCrashInTheJobRunsTheSlotAgain(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	scheduler := func(args ...string) *demotest.Process {
		// A slot of a century, so that all look after the same one.
		return demotest.Start(t, append(args,
			"--endpoints", srv.Endpoints()[0], "--interval", "876000h", "--slots", "1", "--ttl", "2s")...)
	}
	crashes := scheduler("--names", "node-1", "--takes", "1h")
	crashes.Await(t, `node-1 +[\d:]+: runs the job`)
	others := []*demotest.Process{scheduler("--names", "node-2"), scheduler("--names", "node-3")}
	srv.WaitForKeys(t, "holdfast/lock/"+lockName+"/@/", 3)
	if kvs := srv.Keys(t, lastRun); len(kvs) > 0 {
		t.Errorf("recorded while the job runs: %v", kvs)
	}

	crashes.Signal(t, os.Kill)
	runs := 0
	for _, p := range others {
		stdout, stderr, code := p.Wait()
		if code != 0 {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
		runs += strings.Count(stdout, "runs the job")
	}
	if runs != 1 || len(srv.Keys(t, lastRun)) != 1 {
		t.Errorf("the slot was run %d times after the crash, and the record is %v", runs, srv.Keys(t, lastRun))
	}
}
