package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// A session may lead elections of thousands of names. It keeps no turn when no call has it or waits for it: after a
// term, after a term that was lost while its function ran, and after a function that failed at once.
func TestSessionForgetsTheTurnsOfItsElections(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess, err := session.New(t.Context(), srv.Client(t), session.Options{
			Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sess.Close(context.Background()) }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		var last *Election
		for i := range 16 {
			e := New(sess, fmt.Sprint("job-", i%3)).With(Options{Value: ""})
			last = e
			for _, lose := range []bool{false, true} {
				err := e.RunWhileLeader(ctx, func(ctx context.Context, t *Term) error {
					if of := kept(e); of != 1 {
						return fmt.Errorf("%d turns while it leads", of)
					}
					if lose {
						srv.Delete(t.Key())
						<-ctx.Done()
					}
					return nil
				})
				if (err != nil) != lose {
					t.Error(err)
				}
			}
			failed := errors.New("failed")
			if err := e.Run(ctx, func(context.Context, *Term) error { return failed }); err != failed {
				t.Error(err)
			}
			time.Sleep(time.Second)
			synctest.Wait() // the turn of a failed Run has ended
		}
		synctest.Wait()
		if of := kept(last); of != 0 {
			t.Errorf("turns of %d elections are kept", of)
		}
	})
}

// kept is how many turns the session of an election keeps.
func kept(e *Election) int {
	all := e.turns()
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.of)
}
