package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/session"
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

// A worker whose session is suspended when a job ends does the job again, and all others.
func TestWorkerGoesOnAfterASuspension(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q, err := openQueue(t.Context(), filepath.Join(t.TempDir(), "jobs.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer q.db.Close()
		link := srv.Link()
		sess, err := session.New(t.Context(), link.Client(), session.Options{
			Logger: slog.New(slog.DiscardHandler), Clock: session.MonotonicClock(), // virtual, as the test
		})
		if err != nil {
			t.Fatal(err)
		}
		defer sess.Close(context.Background())
		before := *takes
		defer func() { *takes = before }()
		*takes = 10 * time.Second // the lease is suspended after 6.75 s, and lost after 13.5 s
		var out strings.Builder
		d := demo.New(link.Client(), &out)
		ended := make(chan error, 1)
		w := &worker{d, q, "A", &trouble{Demo: d, ctx: t.Context(), redone: make(chan struct{})}}
		w.trouble.happened.Store(true)
		link.LoseRequest("LeaseKeepAlive", 0)
		go func() { ended <- w.queueUp(t.Context(), sess) }() // received below
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if err := sess.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Errorf("not suspended: %v", err)
		}
		link.Heal()
		if err := <-ended; err != nil {
			t.Errorf("%v", err)
		}
		for what, want := range map[string]int{
			"is cut off": 1, "begins job 1,": 2, "begins job": 5, "has finished job": 4, "REFUSED": 0, "no job left": 1,
		} {
			if got := strings.Count(out.String(), what); got != want {
				t.Errorf("%d times %q, want %d:\n%s", got, what, want, &out)
			}
		}
	})
}
