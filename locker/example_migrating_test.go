package locker_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// The releases of docs/migrating.md, which shows these functions.

// guide: shared

func reportAtPrefix(ctx context.Context, sess *session.Session) error {
	mu := locker.NewMutexAt(sess, "/app/locks/report") // as given to concurrency.NewMutex
	return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error { return writeReport(ctx) })
}

// guide: both

func reportWithBoth(ctx context.Context, sess *session.Session) error {
	old, mu := locker.NewMutexAt(sess, "/app/locks/report"), locker.NewMutex(sess, "report")
	return old.Do(ctx, func(ctx context.Context, _ *locker.Lock) error { // the old one first, in each process
		return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error { return writeReport(ctx) })
	})
}

// guide: leaders

func leadWithBoth(ctx context.Context, sess *session.Session, me string) error {
	o := election.Options{Value: me}
	old, el := election.NewAt(sess, "/app/scheduler").With(o), election.New(sess, "scheduler").With(o)
	return old.Run(ctx, func(ctx context.Context, _ *election.Term) error {
		return el.Run(ctx, func(ctx context.Context, t *election.Term) error { return schedule(ctx, t) })
	})
}

// guide: end

func writeReport(ctx context.Context) error {
	fmt.Println("report")
	return ctx.Err()
}

func schedule(ctx context.Context, t *election.Term) error {
	fmt.Println(t.Name(), "is led by", t.Value())
	return context.Canceled // what the program's end is in this example
}

// The releases of a program that leaves etcd's concurrency.NewMutex: first at its prefix, then with both locks.
func ExampleNewMutexAt_migrating() {
	_, sess, _, end := example()
	defer end()

	ctx := context.Background()
	for _, release := range []func(context.Context, *session.Session) error{reportAtPrefix, reportWithBoth} {
		if err := release(ctx, sess); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// report
	// report
}

// The release of a program that leaves the prefix of an etcd election.
func ExampleNewMutexAt_migratingElection() {
	_, sess, _, end := example()
	defer end()

	fmt.Println(leadWithBoth(context.Background(), sess, "node-1"))
	// Output:
	// scheduler is led by node-1
	// context canceled
}
