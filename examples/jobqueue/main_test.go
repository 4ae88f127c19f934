package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestLateResultIsRefused(t *testing.T) {
	t.Parallel()
	out := demotest.Output(t)
	demotest.CheckShown(t, out, false, `\b[AB]\b`)
	for what, want := range map[string]int{
		"begins job": 5, "has finished job": 4, "REFUSED": 1, "has finished job 2": 1, "begins job 2": 2,
	} {
		if got := strings.Count(out, what); got != want {
			t.Errorf("%d times %q, want %d:\n%s", got, what, want, out)
		}
	}
}

func TestWorkerThatCrashesIsReplaced(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	path := filepath.Join(t.TempDir(), "jobs.db")
	worker := func(args ...string) *demotest.Process {
		return demotest.Start(t, append(args, "--endpoints", srv.Endpoints()[0], "--db", path, "--ttl", "2s")...)
	}
	crashes := worker("--names", "node-1", "--takes", "1h")
	crashes.Await(t, "node-1 +begins job 1,")
	next := worker("--names", "node-2", "--takes", "1ms")
	srv.WaitForKeys(t, "holdfast/lock/examples/jobs/@/", 2)
	crashes.Signal(t, os.Kill)
	for _, line := range []string{"begins job 1,", "finished job 1 ", "begins job 2,", "finished job 4 ", "no job left"} {
		next.Await(t, "node-2 .*"+line)
	}

	q, err := openQueue(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer q.db.Close()
	for id := range 4 {
		if got, err := q.result(t.Context(), id+1); err != nil || got != "by node-2" {
			t.Errorf("job %d: %q, %v", id+1, got, err)
		}
	}
}
