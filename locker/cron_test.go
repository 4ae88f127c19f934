package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The functions of docs/cron.md are in example_cron_test.go.

func place(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// minuteOf is the time of day that clocks show.
func minuteOf(t time.Time) int { return t.Hour()*60 + t.Minute() }

// Clocks are set forward and back at 1:00 to 3:00 as a rule, in Santiago and Cairo at midnight, on Lord Howe by half an
// hour. A job may be looked at all the time, or only when cron ticks, which is once when clocks show its time, twice if
// they show that twice, and not at all if they skip it.
func TestEachLocalDateIsRunOnceAcrossTheSwitchesOfAYear(t *testing.T) {
	places := []string{
		"UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Europe/London", "America/New_York",
		"Africa/Cairo", "Asia/Kolkata",
	}
	if bubble.Race {
		places = places[:4] // "long" in CI has all of them, without the race detector
	}
	for _, name := range places {
		loc := place(t, name)
		for _, at := range []time.Duration{
			0, 30 * time.Minute, time.Hour, 90 * time.Minute, 2 * time.Hour, 150 * time.Minute, 3 * time.Hour,
			12 * time.Hour, 23*time.Hour + 30*time.Minute,
		} {
			begin := time.Date(2026, 1, 1, 0, 0, 0, 0, loc)
			polled, ticked := "2025-12-31", "2025-12-31"
			var byPolls, byTicks []string
			ticks := make(map[string]bool) // the dates on which cron ticks
			for now := begin; now.Year() == 2026; now = now.Add(30 * time.Minute) {
				slot := night(now, at)
				if slot > polled {
					polled, byPolls = slot, append(byPolls, slot)
					if date := now.Format(time.DateOnly); slot != date {
						t.Errorf("%s, at %v: %s is run on %v", name, at, slot, now)
					}
				}
				if minuteOf(now) == int(at.Minutes()) {
					ticks[now.Format(time.DateOnly)] = true
					if slot > ticked {
						ticked, byTicks = slot, append(byTicks, slot)
					}
				}
			}
			if len(byPolls) != 365 {
				t.Errorf("%s, at %v: %d dates were run, looked at all the time", name, at, len(byPolls))
			}
			if len(byTicks) != len(ticks) || len(ticks) < 364 {
				t.Errorf("%s, at %v: %d dates were run, and cron ticked on %d", name, at, len(byTicks), len(ticks))
			}
			for _, date := range byTicks {
				if !ticks[date] {
					t.Errorf("%s, at %v: %s was run, and cron did not tick on it", name, at, date)
				}
			}
		}
	}
}

// From one night to the next there are 23 hours then.
func TestMinHoldOfANightlyJobLosesNoNightAtTheSwitchToSummerTime(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		berlin := place(t, "Europe/Berlin")
		ran := 0
		job := report
		report = func(context.Context, string) error { ran++; return nil }
		t.Cleanup(func() { report = job })
		run := func() int {
			t.Helper()
			p := kit.Start(t, srv)
			before := ran
			err := runTick(t.Context(), p.Sess, 23*time.Hour)
			if err := errors.Join(err, p.Sess.Close(t.Context())); err != nil {
				t.Error(err)
			}
			return ran - before
		}
		for day := 24; day <= 28; day++ { // clocks are set forward on 26 March 2000
			time.Sleep(time.Until(time.Date(2000, 3, day, 1, 30, 0, 0, berlin)))
			first := run()
			time.Sleep(time.Second)
			if second := run(); first != 1 || second != 0 {
				t.Errorf("%v: the first process runs it %d times, the second %d", time.Now().In(berlin), first, second)
			}
		}
	})
}
