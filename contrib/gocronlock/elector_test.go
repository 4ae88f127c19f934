package gocronlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/contrib/gocronlock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
)

// elector returns an Elector that runs until stop is called or the test ends.
func (m *machine) elector(t *testing.T, o gocronlock.ElectorOptions) (e *gocronlock.Elector, stop func() error) {
	t.Helper()
	e, err := gocronlock.NewElector(election.New(m.sess, "cron").With(election.Options{Value: "leads"}), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }() // joined by stop
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return e, stop
}

// Three machines, whose clocks differ by 600 ms, and leaders that resign after ten minutes: each slot is run once, also
// the one during which the first resigns.
func TestLeaderRunsEachSlotOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		time.Sleep(30 * time.Second)
		var runs record
		var stops []func() error
		for _, offset := range []time.Duration{400 * time.Millisecond, -200 * time.Millisecond, 0} {
			m := start(t, srv, offset)
			e, stop := m.elector(t, gocronlock.ElectorOptions{})
			m.schedule(t, everyMinute(), e.Task(func(context.Context, *election.Term) error {
				runs.add(m.clock.slot())
				return nil
			}), gocron.WithDistributedElector(e))
			stops = append(stops, stop)
			synctest.Wait() // the campaigns are in this order
		}
		// The first leader resigns when it has run a slot that the second, whose clock is late, has not seen yet.
		time.Sleep(10*time.Minute + 30*time.Second - 300*time.Millisecond)
		if err := stops[0](); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		time.Sleep(9*time.Minute + 30*time.Second)
		_ = stops[1]()
		time.Sleep(10 * time.Minute)
		if counts := runs.counts(); len(counts) != 30 || slices.Max(counts) != 1 {
			t.Errorf("runs of each slot: %v, want once in each of 30", counts)
		}
	})
}

// The next leader waits for the task of the former one, whose context says why it has to end.
func TestRunWaitsForTasksBeforeItResigns(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv, 0), start(t, srv, 0)
		first, stop := a.elector(t, gocronlock.ElectorOptions{})
		var token holdfast.Token
		var canceled, ended time.Time
		a.schedule(t, everyMinute(), first.Task(func(ctx context.Context, term *election.Term) error {
			if h, ok := fencing.FromContext(ctx); !ok || h.Token() != term.Token() || term.Value() != "leads" {
				t.Errorf("the context carries %v, %v", h, ok)
			}
			token = term.Token()
			<-ctx.Done()
			canceled = time.Now()
			time.Sleep(5 * time.Second) // cleanup
			ended = time.Now()
			return nil
		}), gocron.WithDistributedElector(first))
		synctest.Wait()
		second, _ := b.elector(t, gocronlock.ElectorOptions{})
		time.Sleep(61 * time.Second)

		if first.IsLeader(t.Context()) != nil {
			t.Error("the first does not lead")
		}
		err := second.IsLeader(t.Context())
		if !errors.Is(err, gocronlock.ErrNotLeader) || !strings.Contains(err.Error(), `"cron"`) {
			t.Errorf("the second: %v", err)
		}
		stopped := time.Now()
		_ = stop()
		if token == 0 || canceled != stopped || ended.Sub(canceled) != 5*time.Second || time.Now() != ended {
			t.Errorf("token %v; stopped %v, canceled %v, ended %v, now %v", token, stopped, canceled, ended, time.Now())
		}
		if err := first.IsLeader(t.Context()); !errors.Is(err, gocronlock.ErrNotLeader) {
			t.Errorf("the first, stopped: %v", err)
		}
		synctest.Wait()
		err = second.IsLeader(t.Context())
		if !errors.Is(err, gocronlock.ErrNotLeader) || !strings.Contains(err.Error(), "begun") {
			t.Errorf("the second, just elected: %v", err)
		}
		time.Sleep(time.Second)
		if err := second.IsLeader(t.Context()); err != nil {
			t.Errorf("the second: %v", err)
		}
	})
}

// A leader that is cut off runs no further job, its task ends in time, and gocron hears why.
func TestTaskEndsWithItsTerm(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv, 0), start(t, srv, 0)
		first, _ := a.elector(t, gocronlock.ElectorOptions{})
		var ended time.Time
		var cause, reported error
		a.schedule(t, everyMinute(), first.Task(func(ctx context.Context, _ *election.Term) error {
			if ended.IsZero() {
				a.link.BlackHole()
				<-ctx.Done()
				ended, cause = time.Now(), context.Cause(ctx)
			}
			return nil
		}), gocron.WithDistributedElector(first), gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { reported = err })))
		synctest.Wait()
		second, _ := b.elector(t, gocronlock.ElectorOptions{})
		time.Sleep(68 * time.Second)
		err := first.IsLeader(t.Context())
		if !errors.Is(err, gocronlock.ErrNotLeader) || !errors.Is(err, holdfast.ErrSuspended) {
			t.Errorf("8 s after it was cut off: %v", err)
		}
		for second.IsLeader(t.Context()) != nil {
			time.Sleep(100 * time.Millisecond)
		}
		led := time.Now()
		synctest.Wait()
		var lost *holdfast.LostError
		if !errors.As(cause, &lost) || !errors.Is(reported, lost) || !ended.Before(led) {
			t.Errorf("the cause %v, gocron was told %v; ended %v, the next led %v", cause, reported, ended, led)
		}
	})
}

func TestNewElectorRefusesBadArguments(t *testing.T) {
	var bad *holdfast.ArgumentError
	if _, err := gocronlock.NewElector(nil, gocronlock.ElectorOptions{}); !errors.As(err, &bad) || bad.Argument != "el" {
		t.Errorf("%v", err)
	}
	_, err := gocronlock.NewElector(election.New(nil, "x"), gocronlock.ElectorOptions{Quiet: -1})
	if !errors.As(err, &bad) || bad.Argument != "ElectorOptions.Quiet" {
		t.Errorf("%v", err)
	}
}
