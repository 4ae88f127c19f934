package kubelock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/session"
)

// client-go's elector over etcd, with a token for what it writes.
func ExampleLock() {
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	cli := srv.Link().Client() // a service makes one with session.NewClient

	lock, err := kubelock.New(cli, "shop/operator", "pod-1_8f14e45f", kubelock.Options{
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	written := make(chan error)
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				_, err := etcdfence.NewWriter(lock.Term()).Put(ctx, "shop/state", "v1")
				go func() { written <- err }()
				stop()
			},
			OnStoppedLeading: func() {},
		},
	})
	fmt.Println("written:", <-written)
	fmt.Println("released:", lock.Term() == nil)
	// Output:
	// written: <nil>
	// released: true
}

// A manager calls Start, and ends its context.
func ExampleNewRunnable() {
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	ctx, stop := context.WithCancel(context.Background())
	sess, err := session.New(ctx, srv.Link().Client(), session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(context.Background())

	work := func(ctx context.Context, term *election.Term) error {
		fmt.Println("leading as", term.Value())
		stop() // a service works until ctx ends
		<-ctx.Done()
		return nil
	}
	el := election.New(sess, "shop/operator").With(election.Options{Value: "pod-1"})
	runnable := kubelock.NewRunnable(el, work)
	// mgr.Add(runnable); mgr.Start(ctx) does this:
	fmt.Println("stopped:", runnable.Start(ctx))
	// Output:
	// leading as pod-1
	// stopped: <nil>
}
