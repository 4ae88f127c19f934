package gocronlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/contrib/gocronlock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// example returns a session. A service makes its own with session.NewClient and session.New.
func example() (sess *session.Session, end func()) {
	srv := etcdfake.New(etcdfake.Options{})
	sess, err := session.New(context.Background(), srv.Link().Client(), session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return sess, func() {
		_ = sess.Close(context.Background())
		srv.Close()
	}
}

func ExampleLocker() {
	sess, end := example()
	defer end()

	jobs, err := gocronlock.NewLocker(sess, gocronlock.LockerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	cron, err := gocron.NewScheduler(gocron.WithDistributedLocker(jobs))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan bool)
	report := func(ctx context.Context, lk *locker.Lock) error { // ctx is canceled when the lock is lost
		ran <- lk.Check() == nil
		return nil
	}
	// A service would have gocron.CronJob("0 3 * * *", false).
	at := gocron.OneTimeJob(gocron.OneTimeJobStartImmediately())
	if _, err := cron.NewJob(at, jobs.Task("report", report), gocron.WithName("report")); err != nil {
		log.Fatal(err)
	}
	cron.Start()
	fmt.Println("with its lock:", <-ran)
	fmt.Println("shut down:", cron.Shutdown())
	// Output:
	// with its lock: true
	// shut down: <nil>
}

func ExampleElector() {
	sess, end := example()
	defer end()

	el := election.New(sess, "cron").With(election.Options{Value: "host-1"})
	elector, err := gocronlock.NewElector(el, gocronlock.ElectorOptions{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- elector.Run(ctx) }()

	cron, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan string)
	report := func(ctx context.Context, term *election.Term) error { // ctx is canceled when the term ends
		select {
		case ran <- term.Value():
		case <-ctx.Done():
		}
		return nil
	}
	if _, err := cron.NewJob(gocron.CronJob("* * * * * *", true), elector.Task(report)); err != nil {
		log.Fatal(err)
	}
	cron.Start()
	fmt.Println("run by", <-ran)
	stop() // tasks end, then another scheduler leads
	fmt.Println("stopped:", <-ended)
	_ = cron.Shutdown()
	// Output:
	// run by host-1
	// stopped: context canceled
}
