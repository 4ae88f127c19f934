package kubelock_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

func newElection(t *testing.T, srv *etcdfake.Server, name string) *election.Election {
	t.Helper()
	sess, err := session.New(t.Context(), srv.Client(t), session.Options{
		Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	return election.New(sess, name)
}

// The next replica leads when the function of the former one has returned, and the end of the manager is no error.
func TestRunnableWaitsForItsFunction(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var ended, began time.Time
		one, two := newElection(t, srv, "operator"), newElection(t, srv, "operator")
		first := kubelock.NewRunnable(one, func(ctx context.Context, _ *election.Term) error {
			<-ctx.Done()
			time.Sleep(5 * time.Second) // cleanup
			ended = time.Now()
			return nil
		})
		second := kubelock.NewRunnable(two, func(ctx context.Context, _ *election.Term) error {
			began = time.Now()
			<-ctx.Done()
			return ctx.Err()
		})
		if first.NeedLeaderElection() {
			t.Error("the manager would elect, too")
		}
		ctx, stop := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() { results <- first.Start(ctx) }() // joined below
		synctest.Wait()
		rest, stopAll := context.WithCancel(t.Context())
		go func() { results <- second.Start(rest) }() // joined below
		synctest.Wait()
		stop()
		if err := <-results; err != nil {
			t.Errorf("stopped: %v", err)
		}
		synctest.Wait()
		if ended.IsZero() || began.Before(ended) {
			t.Errorf("the first ended at %v, the second began at %v", ended, began)
		}
		stopAll()
		if err := <-results; err != nil {
			t.Errorf("stopped: %v", err)
		}
	})
}

// The manager is told that the work of a lost term still runs.
func TestFunctionThatHangsIsNoOrderlyEnd(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		el := newElection(t, srv, "operator").With(election.Options{DrainTimeout: time.Second})
		began, ends := make(chan *election.Term, 1), make(chan struct{})
		r := kubelock.NewRunnable(el, func(_ context.Context, term *election.Term) error {
			began <- term
			<-ends
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Start(ctx) }() // joined below
		srv.Revoke((<-began).Lease())
		time.Sleep(time.Minute)
		stop()
		if err := <-result; !errors.Is(err, election.ErrNotDrained) {
			t.Errorf("stopped while the function hangs: %v", err)
		}
		close(ends)
		synctest.Wait()
	})
}

func TestErrorOfTheFunctionEndsTheRunnable(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		failed := errors.New("failed")
		r := kubelock.NewRunnable(newElection(t, srv, "operator"), func(context.Context, *election.Term) error {
			return failed
		})
		if err := r.Start(t.Context()); !errors.Is(err, failed) {
			t.Errorf("%v", err)
		}
		var bad *holdfast.ArgumentError
		if err := kubelock.NewRunnable(newElection(t, srv, "x"), nil).Start(t.Context()); !errors.As(err, &bad) {
			t.Errorf("without a function: %v", err)
		}
	})
}
