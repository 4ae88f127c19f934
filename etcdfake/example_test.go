package etcdfake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Serve stands for your service: it works while it holds a lock.
func Serve(ctx context.Context, sess *session.Session) error {
	return locker.NewMutex(sess, "nightly").Do(ctx, func(ctx context.Context, _ *locker.Lock) error {
		<-ctx.Done() // the work
		return context.Cause(ctx)
	})
}

// This tests that a service stops when it loses its lock: without a server, and without waiting for the 13.5 s. In a
// test of yours, t is the argument of the test function.
func ExampleTest() {
	t := new(testing.T)
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		sess, err := session.New(t.Context(), link.Client(), session.Options{
			Clock:  session.MonotonicClock(), // the default clock also reads real time
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		start := time.Now()
		stopped := make(chan error)
		go func() { stopped <- Serve(context.Background(), sess) }()
		synctest.Wait() // now it works

		link.BlackHole()
		err = <-stopped
		fmt.Println("lost:", errors.Is(err, holdfast.ErrLost), "after", time.Since(start))

		link.Heal()
		fmt.Println("closed:", sess.Close(context.Background()))
	})
	// Output:
	// lost: true after 13.5s
	// closed: <nil>
}

// This tests what a service does while another client holds the lock, and when it loses the lock itself.
func ExampleServer_Occupy() {
	t := new(testing.T)
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		release := srv.Occupy("holdfast/lock/nightly/@/")
		sess, err := session.New(t.Context(), srv.Client(t), session.Options{
			Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer sess.Close(context.Background())
		stopped := make(chan error)
		go func() { stopped <- Serve(context.Background(), sess) }()
		synctest.Wait()
		fmt.Println("in the queue:", len(srv.Keys("holdfast/lock/nightly/@/")))

		release()
		synctest.Wait()
		srv.RevokeHolder("holdfast/lock/nightly/@/")
		fmt.Println("lost:", errors.Is(<-stopped, holdfast.ErrLost))
	})
	// Output:
	// in the queue: 2
	// lost: true
}
