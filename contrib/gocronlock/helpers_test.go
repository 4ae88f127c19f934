package gocronlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"

	"github.com/holdfast-go/holdfast/contrib/gocronlock"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// everyMinute returns a job that is due at each full minute.
func everyMinute() gocron.JobDefinition { return gocron.CronJob("* * * * *", false) }

// skewed is the clock of a machine that is ahead of the others by offset.
type skewed struct {
	clockwork.Clock
	offset time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.offset) }

// slot is the minute that is nearest to now by that clock.
func (c skewed) slot() time.Time { return c.Now().Round(time.Minute) }

// machine is one of several that run the same jobs.
type machine struct {
	clock skewed
	link  *etcdfake.Link
	sess  *session.Session
	cron  gocron.Scheduler
	log   *bytes.Buffer // warnings of a Locker, to be read when the bubble is idle
}

// start starts a machine whose clock is ahead by offset, without its scheduler. The end of the test stops it.
func start(t *testing.T, srv *etcdfake.Server, offset time.Duration) *machine {
	t.Helper()
	m := &machine{clock: skewed{clockwork.NewRealClock(), offset}, link: srv.Link(), log: new(bytes.Buffer)}
	var err error
	m.sess, err = session.New(t.Context(), m.link.Client(), &session.Options{
		Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.sess.Close(context.Background()) })
	return m
}

// schedule starts a scheduler with one job.
func (m *machine) schedule(
	t *testing.T, job gocron.JobDefinition, task gocron.Task, o gocron.SchedulerOption, of ...gocron.JobOption,
) {
	t.Helper()
	var err error
	m.cron, err = gocron.NewScheduler(o, gocron.WithClock(m.clock), gocron.WithLocation(time.UTC))
	if err == nil {
		_, err = m.cron.NewJob(job, task, append([]gocron.JobOption{gocron.WithName("report")}, of...)...)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.cron.Start()
	t.Cleanup(func() { _ = m.cron.Shutdown() })
}

// locker returns a Locker with these options.
func (m *machine) locker(t *testing.T, o gocronlock.LockerOptions) *gocronlock.Locker {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(m.log, nil))
	l, err := gocronlock.NewLocker(m.sess, &o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// record counts runs by slot.
type record struct {
	mu   sync.Mutex // protects runs
	runs map[time.Time]int
}

// task is a task that takes the given time, unless its context ends.
func (r *record) task(clock skewed, takes time.Duration) func(context.Context, *locker.Lock) error {
	return func(ctx context.Context, _ *locker.Lock) error {
		r.add(clock.slot())
		return work(ctx, takes)
	}
}

func (r *record) add(slot time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = make(map[time.Time]int)
	}
	r.runs[slot]++
}

// counts returns the number of runs of each slot, earliest first.
func (r *record) counts() (counts []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, slot := range slices.SortedFunc(maps.Keys(r.runs), time.Time.Compare) {
		counts = append(counts, r.runs[slot])
	}
	return counts
}

// work takes time, unless ctx ends.
func work(ctx context.Context, takes time.Duration) error {
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
