package gocronlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/contrib/gocronlock"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/view"
)

// Three machines, whose clocks differ by 6 s, run a job of 10 ms: once in each of 60 minutes.
func TestEachSlotIsRunOnceAlthoughClocksDiffer(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		time.Sleep(30 * time.Second) // all clocks show the same minute
		var runs record
		for _, offset := range []time.Duration{0, 2 * time.Second, -4 * time.Second} {
			m := start(t, srv, offset)
			l := m.locker(t, gocronlock.LockerOptions{})
			task := l.Task("report", runs.task(m.clock, 10*time.Millisecond))
			m.schedule(t, everyMinute(), task, gocron.WithDistributedLocker(l))
		}
		time.Sleep(time.Hour)
		counts := runs.counts()
		if len(counts) != 60 || slices.Max(counts) != 1 {
			t.Errorf("runs of each slot: %v, want 60 times 1", counts)
		}
	})
}

// A run that takes longer than the interval keeps the other machines from the job.
func TestJobDoesNotOverlapWithItself(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var runs record
		for range 3 {
			m := start(t, srv, 0)
			l := m.locker(t, gocronlock.LockerOptions{})
			m.schedule(t, everyMinute(), l.Task("report", runs.task(m.clock, 90*time.Second)), gocron.WithDistributedLocker(l))
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		if counts := runs.counts(); !slices.Equal(counts, []int{1, 1, 1, 1, 1}) {
			t.Errorf("runs of each slot: %v, want one in every second of 10 minutes", counts)
		}
	})
}

// A machine that is cut off from etcd stops its run before another machine starts one.
func TestTaskIsCanceledBeforeAnotherMachineRunsTheJob(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := start(t, srv, time.Second) // the first
		var began, ended, next time.Time
		var cause, reported error
		l := a.locker(t, gocronlock.LockerOptions{})
		a.schedule(t, everyMinute(), l.Task("report", func(ctx context.Context, lk *locker.Lock) error {
			if h, ok := fencing.FromContext(ctx); !ok || h.Token() != lk.Token() {
				t.Errorf("the context carries %v, %v", h, ok)
			}
			began = time.Now()
			a.link.BlackHole()
			<-ctx.Done()
			ended, cause = time.Now(), context.Cause(ctx)
			return nil
		}), gocron.WithDistributedLocker(l), gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { reported = err })))
		b := start(t, srv, 0)
		other := b.locker(t, gocronlock.LockerOptions{})
		b.schedule(t, everyMinute(), other.Task("report", func(context.Context, *locker.Lock) error {
			if next.IsZero() {
				next = time.Now()
			}
			return nil
		}), gocron.WithDistributedLocker(other))

		time.Sleep(4 * time.Minute)
		synctest.Wait()
		var lost *holdfast.LostError
		if began.IsZero() || !errors.As(cause, &lost) || !errors.Is(reported, lost) {
			t.Errorf("began %v, the cause %v, gocron was told %v", began, cause, reported)
		}
		if next.IsZero() || !ended.Before(next) {
			t.Errorf("ended at %v, run again at %v", ended, next)
		}
	})
}

// A run whose lock cannot be taken in time is skipped, not run late.
func TestSlotIsSkippedWhileEtcdDoesNotAnswer(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		m := start(t, srv, 0)
		var runs record
		var skipped error
		l := m.locker(t, gocronlock.LockerOptions{})
		m.schedule(t, everyMinute(), l.Task("report", runs.task(m.clock, 0)), gocron.WithDistributedLocker(l),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped = err })))
		time.Sleep(59 * time.Second)
		m.link.BlackHole()
		time.Sleep(6 * time.Second)
		m.link.Heal()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		var failed *view.AcquireError
		if counts := runs.counts(); len(counts) != 0 || !errors.As(skipped, &failed) || failed.Waited > 4*time.Second {
			t.Errorf("runs %v, skipped with %v", counts, skipped)
		}
		if log := m.log.String(); !strings.Contains(log, "gocron run skipped") || !strings.Contains(log, "job=report") {
			t.Errorf("log: %s", log)
		}
		time.Sleep(time.Minute)
		if counts := runs.counts(); !slices.Equal(counts, []int{1}) {
			t.Errorf("in the next minute: %v", counts)
		}
	})
}

// What is held by another machine is not worth a warning.
func TestRunThatAnotherMachineHasIsSkippedSilently(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		m := start(t, srv, 0)
		defer srv.Occupy("holdfast/lock/gocron/report/@/")()
		_, err := m.locker(t, gocronlock.LockerOptions{}).Lock(t.Context(), "report")
		if !errors.Is(err, locker.ErrLocked) || m.log.Len() != 0 {
			t.Errorf("%v, log %s", err, m.log)
		}
	})
}

func TestTaskWithoutItsLockIsNotRun(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		m := start(t, srv, 0)
		l := m.locker(t, gocronlock.LockerOptions{})
		var reported error
		task := l.Task("misspelt", func(context.Context, *locker.Lock) error {
			t.Error("it was run")
			return nil
		})
		m.schedule(t, everyMinute(), task, gocron.WithDistributedLocker(l), gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { reported = err })))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if !errors.Is(reported, gocronlock.ErrNotHeld) || !strings.Contains(reported.Error(), `WithName("misspelt")`) {
			t.Errorf("%v", reported)
		}
	})
}

// A scheduler that shuts down ends its run and gives the lock back: to others once MinHold is over, whose clocks may be
// late.
func TestShutdownEndsTheRunAndReleases(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		m := start(t, srv, 0)
		l := m.locker(t, gocronlock.LockerOptions{})
		var canceled bool
		m.schedule(t, everyMinute(), l.Task("report", func(ctx context.Context, _ *locker.Lock) error {
			canceled = work(ctx, time.Hour) != nil
			return nil
		}), gocron.WithDistributedLocker(l))
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := m.cron.Shutdown(); err != nil || !canceled {
			t.Errorf("%v, canceled %v", err, canceled)
		}
		if err := m.sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
		other := start(t, srv, 0).locker(t, gocronlock.LockerOptions{})
		time.Sleep(8 * time.Second)
		if _, err := other.Lock(t.Context(), "report"); !errors.Is(err, locker.ErrLocked) {
			t.Errorf("8 s after the run began: %v", err)
		}
		time.Sleep(6 * time.Second)
		if _, err := other.Lock(t.Context(), "report"); err != nil {
			t.Errorf("14 s after the run began: %v", err)
		}
	})
}

func TestNewLockerRefusesBadArguments(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := start(t, srv, 0).sess
		for argument, o := range map[string]gocronlock.LockerOptions{
			"LockerOptions.Lock.MinHold": {Lock: locker.Options{MinHold: -1}},
			"LockerOptions.Timeout":      {Lock: locker.Options{MinHold: time.Second}, Timeout: time.Second},
		} {
			var bad *holdfast.ArgumentError
			if l, err := gocronlock.NewLocker(sess, o); l != nil || !errors.As(err, &bad) || bad.Argument != argument {
				t.Errorf("%s: %v, %v", argument, l, err)
			}
		}
		var bad *holdfast.ArgumentError
		o := gocronlock.LockerOptions{Lock: locker.Options{MaxHold: time.Second}}
		if _, err := gocronlock.NewLocker(sess, o); !errors.As(err, &bad) || bad.Argument != "LockerOptions.Lock.MinHold" {
			t.Errorf("MaxHold below MinHold: %v", err)
		}
		if _, err := gocronlock.NewLocker(nil, gocronlock.LockerOptions{}); !errors.As(err, &bad) || bad.Argument != "sess" {
			t.Errorf("%v", err)
		}
	})
}

// What the README says of gocron's CronJob. In Berlin clocks are set forward on 26 March 2000.
func TestCronJobLeavesOutATimeThatClocksSkip(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, _ *etcdfake.Server) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		cron, err := gocron.NewScheduler(gocron.WithLocation(berlin))
		if err != nil {
			t.Fatal(err)
		}
		cron.Start()
		for spec, want := range map[string][]string{
			"30 2 26 3 *":            {"2001-03-26 02:30 +0200", "2002-03-26 02:30 +0100"},
			"CRON_TZ=UTC 0 1 26 3 *": {"2000-03-26 03:00 +0200", "2001-03-26 03:00 +0200"},
		} {
			job, err := cron.NewJob(gocron.CronJob(spec, false), gocron.NewTask(func() {}))
			if err != nil {
				t.Fatal(err)
			}
			next, err := job.NextRuns(2)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, at := range next {
				got = append(got, at.In(berlin).Format("2006-01-02 15:04 -0700"))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", spec, got, want)
			}
		}
		if err := cron.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

func TestTaskRecordsItsRun(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		m := start(t, srv, 0)
		l := m.locker(t, gocronlock.LockerOptions{})
		var recorded error
		m.schedule(t, everyMinute(), l.Task("report", func(ctx context.Context, lk *locker.Lock) error {
			recorded = lastrun.Record(ctx, lk, "", 2*time.Minute)
			return recorded
		}), gocron.WithDistributedLocker(l))
		time.Sleep(90 * time.Second)
		r, err := lastrun.Read(t.Context(), m.sess, holdfast.KindLock, "gocron/report")
		if err != nil || recorded != nil || r.Due.Sub(r.At) != 2*time.Minute || time.Since(r.At) > time.Minute {
			t.Errorf("%v, %v, %v", r, err, recorded)
		}
	})
}
