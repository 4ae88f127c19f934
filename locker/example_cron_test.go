package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// The three ways of docs/cron.md, which shows these functions.

// guide: slots

func runSlot(ctx context.Context, cli *clientv3.Client, sess *session.Session, slot time.Time) error {
	mu := locker.NewMutex(sess, "cron/report")
	return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		const key = "cron/report/last-run"
		this := slot.UTC().Format(time.RFC3339) // such texts are in the order of their times
		last, err := cli.Get(ctx, key)
		if err != nil || len(last.Kvs) > 0 && string(last.Kvs[0].Value) >= this {
			return err // nil: another process has run it
		}
		if err := report(ctx, slot); err != nil {
			return err // the next process runs it
		}
		_, err = fencing.NewFencedWriter(lk).Put(ctx, key, this)
		return err
	})
}

// guide: leader

func runTicker(ctx context.Context, sess *session.Session, me string) error {
	el := election.New(sess, "cron/report")
	return el.Run(ctx, me, func(ctx context.Context, t *election.Term) error {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			select {
			case at := <-tick.C:
				if err := report(ctx, at); err != nil {
					log.Print("report: ", err) // and again at the next tick
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
	err := mu.TryDo(ctx, func(ctx context.Context, _ *locker.Lock) error { return report(ctx, time.Now()) })
	if errors.Is(err, locker.ErrLocked) {
		return nil // another process runs it, or has run it
	}
	return err
}

// guide: end

// report is the job.
func report(ctx context.Context, _ time.Time) error {
	fmt.Println("run")
	return ctx.Err()
}

// Two processes run the job of each slot; whichever is later finds that it has run.
func ExampleMutex_Do_cronSlots() {
	cli, mine, theirs, end := example()
	defer end()

	slot := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC) // time.Now().Truncate(interval), at its tick
	for _, sess := range []*session.Session{mine, theirs} {
		if err := runSlot(context.Background(), cli, sess, slot); err != nil {
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
