package main

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

// The program itself fails if more permits are in use than there are.
func TestPoolDoesItsJobs(t *testing.T) {
	t.Parallel()
	out := demotest.Output(t)
	demotest.CheckShown(t, out, false, `\b[ABC]\b`)
	for what, want := range map[string]int{"with 1 of 2 permits": 6, "with 2 of 2 permits; in use: 2": 3} {
		if got := strings.Count(out, what); got != want {
			t.Errorf("%d times %q, want %d:\n%s", got, what, want, out)
		}
	}
}

func TestPermitsOfProcesses(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	worker := func(name, takes string) *demotest.Process {
		return demotest.Start(t, "--endpoints", srv.Endpoints()[0], "--names", name, "--takes", takes, "--ttl", "2s")
	}
	const entries, turns = "holdfast/sem/examples/pool/@/", "holdfast/sem/examples/pool/@turn/"
	first := worker("node-1", "1h")
	first.Await(t, "node-1 +begins job 1")
	entry := srv.WaitForKeys(t, entries, 1)[0]
	second := worker("node-2", "1h")
	second.Await(t, "node-2 +begins job 1") // both at a time

	third := worker("node-3", "1ms")
	waiting := srv.WaitForKeys(t, turns, 1)[0]
	first.Signal(t, os.Kill)
	third.Await(t, "node-3 +begins job 1") // with the permit of the one that crashed
	third.Await(t, "node-3 +begins job 2")
	srv.WaitForKeys(t, entries, 1)
	srv.WaitForKeys(t, turns, 1) // its large job waits for both permits
	second.Signal(t, os.Interrupt)
	third.Await(t, "node-3 +begins job 3 with 2 of 2 permits")
	if stdout, stderr, code := third.Wait(); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}

	// The third one has waited: its first job has ended after the first one's lease.
	var order []string
	history := slices.Concat(srv.History(t, entries), srv.History(t, turns))
	slices.SortFunc(history, func(a, b *mvccpb.Event) int { return cmp.Compare(a.Kv.ModRevision, b.Kv.ModRevision) })
	for _, ev := range history {
		if ev.Type == clientv3.EventTypeDelete {
			order = append(order, string(ev.Kv.Key))
		}
	}
	crashed, waited := slices.Index(order, string(entry.Key)), slices.Index(order, string(waiting.Key))
	if crashed < 0 || waited < crashed {
		t.Errorf("the entries went in the order %q; %s was to wait for %s", order, waiting.Key, entry.Key)
	}
}
