package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// The three ways of docs/cron.md, which shows these functions.

// guide: slots

func runSlot(ctx context.Context, sess *session.Session, slot string) error {
	mu := locker.NewMutex(sess, "cron/report")
	return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		last, err := lastrun.Read(ctx, sess, holdfast.KindLock, mu.Name())
		if err != nil || last.Slot >= slot {
			return err // nil: another process has run it
		}
		if err := report(ctx, slot); err != nil {
			return err // the next process runs it
		}
		return lastrun.Record(ctx, lk, slot, 26*time.Hour) // the next run is overdue after that
	})
}

// guide: night

// night returns the slot of a daily job: the date, in now's location, of the last time that it was due, such as
// "2026-03-29".
func night(now time.Time, at time.Duration) string {
	wall := time.Date(now.Year(), now.Month(), now.Day(), now.Hour(), now.Minute(), now.Second(), 0, time.UTC)
	return wall.Add(-at).Format(time.DateOnly)
}

// guide: leader

func runTicker(ctx context.Context, sess *session.Session, me string) error {
	el := election.New(sess, "cron/report").With(election.Options{Value: me})
	return el.Run(ctx, func(ctx context.Context, t *election.Term) error {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			select {
			case at := <-tick.C:
				slot := at.UTC().Format(time.RFC3339)
				if err := report(ctx, slot); err != nil {
					log.Print("report: ", err) // and again at the next tick
				} else if err := lastrun.Record(ctx, t, slot, 5*time.Minute); err != nil {
					log.Print("report: ", err)
				}
			case <-ctx.Done(): // deposed, or the end of the program
				return nil
			}
		}
	})
}

// guide: minhold

func runTick(ctx context.Context, sess *session.Session, interval time.Duration) error {
	mu := locker.NewMutex(sess, "cron/report").With(locker.Options{MinHold: interval - 5*time.Second})
	err := mu.TryDo(ctx, func(ctx context.Context, _ *locker.Lock) error {
		return report(ctx, time.Now().UTC().Format(time.RFC3339))
	})
	if errors.Is(err, locker.ErrLocked) {
		return nil // another process runs it, or has run it
	}
	return err
}

// guide: end

// report is the job.
var report = func(ctx context.Context, _ string) error {
	fmt.Println("run")
	return ctx.Err()
}

// Two processes run the job of each slot; whichever is later finds that it has run.
func ExampleMutex_Do_cronSlots() {
	_, mine, theirs, end := example()
	defer end()

	slot := night(time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC), 90*time.Minute)
	for _, sess := range []*session.Session{mine, theirs} {
		if err := runSlot(context.Background(), sess, slot); err != nil {
			log.Fatal(err)
		}
	}
	// Output: run
}

// Two processes tick one after the other. Without MinHold both would run the job.
func ExampleMutex_TryDo_cronMinHold() {
	_, mine, theirs, end := example()
	defer end()

	for _, sess := range []*session.Session{mine, theirs} {
		if err := runTick(context.Background(), sess, time.Minute); err != nil {
			log.Fatal(err)
		}
	}
	// Output: run
}

// The leader has the only ticker; here the program ends before it ticks.
func ExampleMutex_cronLeader() {
	_, sess, _, end := example()
	defer end()

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	fmt.Println(runTicker(ctx, sess, "node-1"))
	// Output: context deadline exceeded
}
