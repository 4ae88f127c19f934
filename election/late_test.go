package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/session"
)

// A term may be lost between its election and the start of the work, here by an
// auditor that takes its time. Another candidate of the session can lead by
// then, and would not see that a function is about to run.
func TestNoWorkIsStartedInATermThatIsLostAlready(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		t.Cleanup(srv.Close)
		sess := open(t, srv.Client(), session.Options{Clock: session.MonotonicClock()})
		var once sync.Once
		el := election.New(sess, "x").With(election.Options{Auditor: audit.Func(func(ctx context.Context, r audit.Record) {
			if r.Event != audit.Granted {
				return
			}
			once.Do(func() {
				l, err := sess.Base().Await(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				l.Lose(holdfast.CauseExpired, errors.New("the auditor took its time"))
			})
		})})
		runs := 0
		err := el.RunWhileLeader(deadline(t), "v", func(_ context.Context, term *election.Term) error {
			runs++
			return term.Check()
		})
		if err != nil || runs != 1 {
			t.Errorf("%d runs, the term's Check in the last, or the loss: %v", runs, err)
		}
	})
}

func TestLeaderEndsWithTheSessionWhileEtcdIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		t.Cleanup(srv.Close)
		link := srv.Link()
		sess := open(t, link.Client(), session.Options{Clock: session.MonotonicClock()})
		link.BlackHole()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		asked := time.Now()
		done := make(chan error, 1)
		go func() { // ends with ctx
			_, err := election.New(sess, "x").Leader(ctx)
			done <- err
		}()
		time.Sleep(time.Second)
		if err := sess.Close(soon(t, time.Second)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Close: %v", err)
		}
		if err := <-done; !errors.Is(err, holdfast.ErrClosed) || time.Since(asked) > 3*time.Second {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
	})
}
