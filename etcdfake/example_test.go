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

// Serve stands for a service of yours: it works for as long as it holds a lock.
func Serve(ctx context.Context, sess *session.Session) error {
	return locker.NewMutex(sess, "nightly").Do(ctx, func(ctx context.Context, _ *locker.Lock) error {
		<-ctx.Done() // the work
		return context.Cause(ctx)
	})
}

// A unit test that a service stops when it loses its lock, without a server
// and without waiting: the fifteen seconds pass in an instant. In a test of
// yours, t is what the test is given.
func Example() {
	t := new(testing.T)
	synctest.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		defer srv.Close()
		link := srv.Link()
		sess, err := session.New(t.Context(), link.Client(), &session.Options{
			Clock:  session.MonotonicClock(), // the default clock knows real time, too
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		start := time.Now()
		stopped := make(chan error)
		go func() { stopped <- Serve(context.Background(), sess) }()
		synctest.Wait() // it works

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
