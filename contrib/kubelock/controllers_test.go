package kubelock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// fakeController lists for a minute before it works, unless it was warmed, starts once, and ends when its queue does,
// as one of controller-runtime.
type fakeController struct {
	warm, listed, started bool
	queue                 <-chan struct{} // closed at the end of the context in which it was warmed
	failed                error
	worked                chan time.Time
}

func (c *fakeController) list(ctx context.Context) {
	if c.listed {
		return
	}
	select {
	case <-time.After(time.Minute):
		c.listed = true
	case <-ctx.Done():
	}
}

func (c *fakeController) Warmup(ctx context.Context) error {
	if c.warm {
		c.list(ctx)
		c.queue = ctx.Done()
	}
	return c.failed
}

func (c *fakeController) Start(ctx context.Context) error {
	if c.started {
		return errors.New("started twice")
	}
	c.started = true
	if c.list(ctx); ctx.Err() == nil {
		c.worked <- time.Now()
	}
	<-ctx.Done()
	if c.queue != nil {
		<-c.queue
	}
	return nil
}

// replicaOf runs controllers in an election, and tells when each works for the first time.
func replicaOf(
	t *testing.T, srv *etcdfake.Server, warm bool, failed error,
) (sess *session.Session, worked chan time.Time, stop func() error) {
	t.Helper()
	sess, err := session.New(t.Context(), srv.Client(t), session.Options{
		Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	worked = make(chan time.Time, 10)
	ctrls := kubelock.NewControllers(election.New(sess, "operator"), func(context.Context) ([]kubelock.Starter, error) {
		return []kubelock.Starter{&fakeController{warm: warm, failed: failed, worked: worked}}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ctrls.Start(ctx) }() // joined by stop
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop(); _ = sess.Close(context.Background()) })
	return sess, worked, stop
}

// A replica that was warmed works after a hand-over at once; a cold one lists first. Each term has other controllers.
func TestWarmControllersWorkRightAfterAHandOver(t *testing.T) {
	for _, warm := range []bool{false, true} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			_, firstWorked, stopFirst := replicaOf(t, srv, warm, nil)
			<-firstWorked
			second, secondWorked, _ := replicaOf(t, srv, warm, nil)
			time.Sleep(2 * time.Minute)
			handedOver := time.Now()
			if err := stopFirst(); err != nil {
				t.Error(err)
			}
			took := (<-secondWorked).Sub(handedOver)
			if warm && took > time.Second || !warm && took < time.Minute {
				t.Errorf("warm %v: works %v after the hand-over", warm, took)
			}
			srv.Revoke(second.Lease()) // the next term has other controllers, which list again
			time.Sleep(10 * time.Second)
			<-secondWorked
		})
	}
}

// What fails while it is warmed ends the manager.
func TestErrorOfAWarmupEndsTheRunnable(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		_, _, stop := replicaOf(t, srv, true, errors.New("no such resource"))
		time.Sleep(2 * time.Minute)
		if err := stop(); err == nil || !strings.Contains(err.Error(), "no such resource") {
			t.Errorf("%v", err)
		}
	})
}

func TestNoControllersAreAnError(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess, err := session.New(t.Context(), srv.Client(t), session.Options{Clock: session.MonotonicClock()})
		if err != nil {
			t.Fatal(err)
		}
		none := func(context.Context) ([]kubelock.Starter, error) { return nil, nil }
		var bad *holdfast.ArgumentError
		if err := kubelock.NewControllers(election.New(sess, "x"), none).Start(t.Context()); !errors.As(err, &bad) {
			t.Errorf("no controllers: %v", err)
		}
		_ = sess.Close(context.Background())
	})
}

// hangs is a controller whose reconciler does not end.
type hangs struct{ ends chan struct{} }

func (c hangs) Start(context.Context) error {
	<-c.ends
	return nil
}

// The manager is told, and does not wait.
func TestStartReturnsAlthoughAControllerHangs(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess, err := session.New(t.Context(), srv.Client(t), session.Options{
			Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		controller := hangs{make(chan struct{})}
		el := election.New(sess, "operator").With(election.Options{DrainTimeout: time.Second})
		ctrls := kubelock.NewControllers(el, func(context.Context) ([]kubelock.Starter, error) {
			return []kubelock.Starter{controller}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ctrls.Start(ctx) }() // received below
		time.Sleep(time.Minute)
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, election.ErrNotDrained) {
				t.Errorf("Start: %v", err)
			}
			close(controller.ends)
		case <-time.After(time.Minute):
			t.Error("Start waits for a controller that hangs")
			close(controller.ends)
			<-ended
		}
		_ = sess.Close(context.Background())
	})
}
