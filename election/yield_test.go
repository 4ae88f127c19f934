package election_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// Of two that yield one term at once, one steps down and queues; for the other
// the term has ended. One term must not become two candidacies.
func TestTwoYieldsOfOneTermAreOneCandidacy(t *testing.T) {
	t.Parallel()
	srv := etcdfake.New(nil)
	t.Cleanup(srv.Close)
	var yielding atomic.Bool
	var both sync.WaitGroup
	both.Add(2)
	sess := open(t, srv.Client(), session.Options{Attributes: func(string, string) []attribute.KeyValue {
		if yielding.Load() { // each has seen the term held, neither has ended it
			both.Done()
			both.Wait()
		}
		return nil
	}})
	term := campaign(t, election.New(sess, "x"), "a")
	yielding.Store(true)
	ctx, cancel := context.WithCancel(deadline(t))
	one, other := yieldLater(ctx, term), yieldLater(ctx, term)
	var won, refused result
	select {
	case won = <-one:
		refused.err = errors.New("still queued")
	case won = <-other:
		one, other = other, one
	}
	if won.err != nil { // the refused came first
		won, refused = await(t, "the other leads again", other), won
	} else {
		cancel() // it need not wait for anything
		refused = await(t, "the other is refused", other)
	}
	cancel()
	if won.err != nil || !errors.Is(refused.err, holdfast.ErrReleased) {
		t.Errorf("one: %v, the other: %v", won.err, refused.err)
	}
}

// Between two calls of the function, while the session is suspended, the term
// is Run's as well.
func TestYieldOfATermThatRunWaitsForIsRefused(t *testing.T) {
	t.Parallel()
	cutOff(t, nil, func(t *testing.T, _ *etcdfake.Server, link *etcdfake.Link, sess *session.Session) {
		el := election.New(sess, "x").With(opts{CancelOnSuspended: true})
		calls := 0
		err := el.Run(t.Context(), "v", func(ctx context.Context, term *election.Term) error {
			if calls++; calls == 2 {
				return errWork
			}
			link.BlackHole()
			<-ctx.Done()
			time.AfterFunc(time.Second, func() { // Run waits by then
				if _, err := term.Yield(t.Context()); !errors.Is(err, election.ErrFunctionRuns) {
					t.Error(err)
				}
				link.Heal()
			})
			return nil
		})
		if !errors.Is(err, errWork) || calls != 2 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}
