package robustness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A ticker is a child that runs a job at each tick, as a service with a cron job does.
const ticker = "ticker"

// A cronJob is the argument of runTicker.
type cronJob struct {
	Endpoints []string
	Start     time.Time // of interval 0
	Interval  time.Duration
	Intervals int
	Offset    time.Duration // of this child's ticks
	MinHold   time.Duration
	Crash     bool // report "running" in the first run, and never return
}

// A cronRun is a completed run of a job; without a name, the end of all intervals.
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
	sess, err := session.New(ctx, cli, &session.Options{TTL: childTTL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	minHold := map[string]time.Duration{cronNames[0]: job.MinHold}
	for n := range job.Intervals {
		tick := job.Start.Add(time.Duration(n)*job.Interval + job.Offset)
		timer := time.NewTimer(time.Until(tick))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		// On a machine that is too busy, a tick that comes late is not tried: the rule is
		// that all processes tick within MinHold.
		late, cancel := context.WithDeadline(ctx, tick.Add(job.MinHold/2))
		for _, name := range cronNames {
			mu := locker.NewMutex(sess, name).With(locker.Options{MinHold: minHold[name]})
			err := mu.TryDo(late, func(ctx context.Context, _ *locker.Lock) error {
				if job.Crash {
					parent.Say("running", cronRun{name, n})
					<-ctx.Done()
				}
				return nil
			})
			switch {
			case err == nil:
				parent.Say("ran", cronRun{name, n})
			case !errors.Is(err, locker.ErrLocked) && late.Err() == nil:
				cancel()
				return fmt.Errorf("%s, interval %d: %w", name, n, err)
			}
		}
		cancel()
	}
	if err := sess.Close(ctx); err != nil {
		return err
	}
	parent.Say("ran", cronRun{})
	<-ctx.Done()
	return nil
}

// Three processes tick a little apart. With MinHold, at most one of them runs the job
// in each interval; without it, more do.
func TestMinHoldRunsAJobOncePerInterval(t *testing.T) {
	t.Parallel()
	const interval = 2 * time.Second
	intervals := rounds(20, 6)
	srv := etcdtest.Start(t) // whose shortest lease lasts for a second
	start := time.Now().Add(interval)
	runs := make(chan cronRun, 6*intervals)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Duration(intervals)*interval)
	defer cancel()
	done := make(chan error, 3)
	for n := range 3 {
		c, err := child.Start[cronRun](ticker, cronJob{
			Endpoints: srv.Endpoints(), Start: start, Interval: interval, Intervals: intervals,
			Offset: time.Duration(n) * interval / 20, MinHold: interval / 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Kill)
		go func() { // ends with ctx; the test receives from done
			for {
				run, err := c.Await(ctx, "ran")
				if err != nil || run.Name == "" {
					done <- err
					return
				}
				runs <- run
			}
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	close(runs)
	count, total := make(map[cronRun]int), make(map[string]int)
	for run := range runs {
		count[run]++
		total[run.Name]++
	}
	for n := range intervals {
		if k := count[cronRun{cronNames[0], n}]; k > 1 {
			t.Errorf("interval %d: with MinHold %d processes ran the job", n, k)
		}
	}
	t.Logf("%d intervals: %v", intervals, total)
	if kept := total[cronNames[0]]; kept < intervals/2 || total[cronNames[1]] <= intervals {
		t.Errorf("with MinHold %d runs, without %d: in %d intervals", kept, total[cronNames[1]], intervals)
	}
}

// A process that is killed after its release leaves the name taken. One that is killed
// while it holds leaves it free once its lease has expired: its run is made again.
func TestMinHoldOutlivesAProcessThatReleasedAndNotOneThatCrashed(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t)
			mu := locker.NewMutex(open(t, srv.Client(t), session.Options{}), cronNames[0])
			c, err := child.Start[cronRun](ticker, cronJob{
				Endpoints: srv.Endpoints(), Start: time.Now(), Intervals: 1, MinHold: time.Hour, Crash: crash,
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
