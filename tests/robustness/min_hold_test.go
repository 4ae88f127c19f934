package robustness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// A ticker is a child that runs a job at each tick, as a service with a cron job does.
const ticker = "ticker"

// A cronJob is the argument of runTicker.
type cronJob struct {
	Endpoints []string
	TTL       time.Duration // of the session
	Start     time.Time     // of interval 0
	Interval  time.Duration
	Offset    time.Duration // of this child's ticks
	MinHold   time.Duration
	Crash     bool // report "running" in the first run, and never return
}

// A cronRun is a run of a job.
type cronRun struct {
	Name     string
	Interval int
}

// The two jobs of a ticker: with MinHold and without.
var cronNames = []string{"cron/minhold", "cron/bare"}

func runTicker(ctx context.Context, _ string, job cronJob, parent *child.Parent[cronRun]) error {
	cli, err := clientv3.New(clientv3.Config{Endpoints: job.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer cli.Close()
	sess, err := session.New(ctx, cli, &session.Options{TTL: job.TTL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	minHold := map[string]time.Duration{cronNames[0]: job.MinHold}
	for n := 0; ; n++ {
		begin := job.Start.Add(time.Duration(n) * job.Interval)
		timer := time.NewTimer(time.Until(begin.Add(job.Offset)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		// The rule is that all processes tick within MinHold. On a busy machine this one may be later: it does not run
		// the job then.
		late, cancel := context.WithDeadline(ctx, begin.Add(job.MinHold))
		for _, name := range cronNames {
			ran := false
			mu := locker.NewMutex(sess, name).WithMinHold(minHold[name])
			err := mu.TryDo(late, func(ctx context.Context, _ *locker.Lock) error {
				if job.Crash {
					parent.Say("running", cronRun{name, n})
					<-ctx.Done()
				}
				ran = time.Until(begin.Add(job.MinHold)) > 0
				return nil
			})
			if err != nil && !errors.Is(err, locker.ErrLocked) && late.Err() == nil {
				cancel()
				return fmt.Errorf("%s, interval %d: %w", name, n, err)
			}
			if ran {
				parent.Say("ran", cronRun{name, n})
			}
		}
		cancel()
	}
}

// Three processes tick a little apart. With MinHold, at most one of them runs the job in each interval. Without it,
// more do: the test goes on until that was seen often enough.
func TestMinHoldRunsAJobOncePerInterval(t *testing.T) {
	t.Parallel()
	const interval = 2 * time.Second
	want := rounds.Of(20, 4)
	srv := etcdtest.Start(t) // whose shortest lease lasts for a second
	ctx := soon(t, time.Duration(want)*15*interval)
	start := time.Now().Add(interval)
	runs := make(chan cronRun)
	for n := range 3 {
		c, err := child.Start[cronRun](ticker, cronJob{
			Endpoints: srv.Endpoints(), TTL: time.Minute, Start: start, Interval: interval,
			Offset: time.Duration(n) * interval / 20, MinHold: interval / 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		var reader sync.WaitGroup
		ctx, cancel := context.WithCancel(ctx)
		t.Cleanup(func() { cancel(); reader.Wait(); c.Kill() })
		reader.Go(func() { // joined by the cleanup
			for {
				run, err := c.Await(ctx, "ran")
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case runs <- run:
				case <-ctx.Done():
				}
			}
		})
	}
	count, total := make(map[cronRun]int), make(map[string]int)
	told := make(map[int]bool) // intervals that show what MinHold is for
	for len(told) < want {
		select {
		case run := <-runs:
			count[run]++
			total[run.Name]++
			kept, bare := count[cronRun{cronNames[0], run.Interval}], count[cronRun{cronNames[1], run.Interval}]
			if kept > 1 && run.Name == cronNames[0] {
				t.Fatalf("interval %d: with MinHold %d processes ran the job", run.Interval, kept)
			}
			if kept == 1 && bare > 1 {
				told[run.Interval] = true
			}
		case <-ctx.Done():
			t.Fatalf("%d intervals with one run with MinHold and several without, want %d: %v", len(told), want, total)
		}
	}
	t.Logf("runs: %v", total)
}

// A process that is killed after its release leaves the name taken. One that is killed
// while it holds leaves it free once its lease has expired: its run is made again.
func TestMinHoldOutlivesAProcessThatReleasedAndNotOneThatCrashed(t *testing.T) {
	t.Parallel()
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t)
			mu := locker.NewMutex(open(t, srv.Client(t), session.Options{}), cronNames[0])
			c, err := child.Start[cronRun](ticker, cronJob{
				Endpoints: srv.Endpoints(), TTL: 5 * time.Second, Start: time.Now(), Interval: 2 * time.Hour,
				MinHold: time.Hour, Crash: crash,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Kill)
			what := "ran"
			if crash {
				what = "running"
			}
			if _, err := c.Await(deadline(t), what); err != nil {
				t.Fatal(err)
			}
			c.Kill()
			if _, err := mu.TryLock(deadline(t)); !errors.Is(err, locker.ErrLocked) {
				t.Errorf("TryLock at once: %v", err)
			}
			srv.WaitForKeys(t, "holdfast/session/", 1) // that of the killed process has expired
			lk, err := mu.TryLock(deadline(t))
			if crash && err != nil || !crash && !errors.Is(err, locker.ErrLocked) {
				t.Errorf("TryLock after the lease of the process has expired: %v", err)
			}
			if lk != nil {
				_ = lk.Unlock(deadline(t))
			}
		})
	}
}
