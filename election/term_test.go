package election_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

func TestResignOnADeadContextResigns(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		term := campaign(t, s.election(), "v")
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		if err := term.Resign(dead); err != nil {
			t.Error(err)
		}
		if kvs := s.entries(); len(kvs) != 0 {
			t.Errorf("entries %v", kvs)
		}
	})
}

func yieldLater(ctx context.Context, term *election.Term) <-chan result {
	return termLater(func() (*election.Term, error) { return term.Yield(ctx) })
}

func TestYieldQueuesAtTheBackInOneTxn(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		first := campaign(t, s.election(), "a")
		if err := first.Proclaim(deadline(t), "a, proclaimed"); err != nil {
			t.Fatal(err)
		}
		other := campaignLater(deadline(t), s.other(t), "b")
		synctest.Wait()
		yielded := yieldLater(deadline(t), first)
		second := won(t, other)
		if first.Check() != holdfast.ErrReleased {
			t.Errorf("Check of the yielded term: %v", first.Check())
		}
		kvs := s.entries()
		if len(kvs) != 2 || string(kvs[0].Key) != second.Key() {
			t.Fatalf("entries %v", kvs)
		}
		if len(yielded) != 0 {
			t.Fatal("it leads while another candidate does")
		}
		left := false
		for _, c := range s.srv.History(prefix) {
			left = left || c.Deleted && c.Kv.ModRevision == kvs[1].CreateRevision && string(c.Kv.Key) == first.Key()
		}
		if !left {
			t.Error("it did not leave and queue again in one Txn")
		}
		resign(t, second)
		third := won(t, yielded)
		if int64(third.Token()) != kvs[1].CreateRevision || third.Token() <= second.Token() ||
			third.Value() != "a, proclaimed" {
			t.Errorf("token %v, value %q", third.Token(), third.Value())
		}
	})
}

func TestYieldOfTheOnlyCandidateLeadsAgainWithALargerToken(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		first := campaign(t, s.election(), "v")
		next, err := first.Yield(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if next.Token() <= first.Token() || next.Check() != nil || first.Check() != holdfast.ErrReleased {
			t.Errorf("token %v after %v; %v, %v", next.Token(), first.Token(), next.Check(), first.Check())
		}
	})
}

func TestYieldLetsCandidatesOfTheSameSessionGoFirst(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		first := campaign(t, s.election(), "first")
		local := campaignLater(deadline(t), s.election(), "second")
		synctest.Wait()
		yielded := yieldLater(deadline(t), first)
		second := won(t, local)
		synctest.Wait()
		if len(yielded) != 0 {
			t.Fatal("it leads while another candidate does")
		}
		resign(t, second)
		if third := won(t, yielded); third.Value() != "first" || third.Token() <= second.Token() {
			t.Errorf("%q, token %v after %v", third.Value(), third.Token(), second.Token())
		}
	})
}

func TestYieldOfAnEndedTermQueuesNothing(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		term := campaign(t, s.election(), "v")
		resign(t, term)
		if _, err := term.Yield(deadline(t)); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("after Resign: %v", err)
		}
		term = campaign(t, s.election(), "v")
		s.srv.Revoke(term.Lease())
		<-term.Done()
		if _, err := term.Yield(deadline(t)); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("after a loss: %v", err)
		}
		if kvs := s.entries(); len(kvs) != 0 {
			t.Errorf("entries %v", kvs)
		}
	})
}

func TestYieldWhoseContextEndsLeavesNoCandidate(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		first := campaign(t, s.election(), "a")
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := first.Yield(dead); !errors.Is(err, context.Canceled) || first.Check() != nil {
			t.Errorf("on a dead context: %v; the term: %v", err, first.Check())
		}

		other := campaignLater(deadline(t), s.other(t), "b")
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		yielded := yieldLater(ctx, first)
		second := won(t, other)
		cancel()
		if r := await(t, "Yield returns", yielded); !errors.Is(r.err, context.Canceled) {
			t.Errorf("%v", r.err)
		}
		if kvs := s.entries(); len(kvs) != 1 || string(kvs[0].Key) != second.Key() {
			t.Errorf("entries %v", kvs)
		}
		if first.Check() != holdfast.ErrReleased {
			t.Errorf("Check: %v", first.Check())
		}
	})
}

// Otherwise the function would run on without its term, and none would run in the
// next one.
func TestYieldOfATermOfAFunctionIsRefused(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		fn := func(_ context.Context, term *election.Term) error {
			_, err := term.Yield(deadline(t))
			var failed *election.CampaignError
			if !errors.Is(err, election.ErrFunctionRuns) || !errors.As(err, &failed) {
				t.Errorf("%v", err)
			}
			if term.Check() != nil || len(s.entries()) != 1 {
				t.Errorf("the term: %v; entries %v", term.Check(), s.entries())
			}
			return errWork
		}
		if err := s.election().With(opts{Value: "v"}).Run(deadline(t), fn); !errors.Is(err, errWork) {
			t.Error(err)
		}
		if err := s.election().With(opts{Value: "v"}).RunWhileLeader(deadline(t), fn); !errors.Is(err, errWork) {
			t.Error(err)
		}
	})
}

// While its session is suspended, between two calls of the function, the term
// belongs to Run.
func TestYieldOfATermThatRunWaitsForIsRefused(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v", CancelOnSuspended: true})
		calls := 0
		err := el.Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			if calls++; calls == 2 {
				return errWork
			}
			s.link.BlackHole()
			<-ctx.Done()
			time.AfterFunc(time.Second, func() { // Run is waiting by then
				if _, err := term.Yield(t.Context()); !errors.Is(err, election.ErrFunctionRuns) {
					t.Error(err)
				}
				s.link.Heal()
			})
			return nil
		})
		if !errors.Is(err, errWork) || calls != 2 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

// Of two concurrent Yields, one resigns and queues; the other finds an ended term.
// One term must not become two candidates.
func TestTwoYieldsOfOneTermAreOneCandidate(t *testing.T) {
	t.Parallel()
	var yielding atomic.Bool
	var both sync.WaitGroup
	both.Add(2)
	var o session.Options
	o.Telemetry.Attributes = func(holdfast.Kind, string) []attribute.KeyValue {
		if yielding.Load() { // both have seen the term held, neither has ended it
			both.Done()
			both.Wait()
		}
		return nil
	}
	sess := open(t, newServer(t).Client(t), o)
	term := campaign(t, election.New(sess, "x"), "a")
	yielding.Store(true)
	ctx, cancel := context.WithCancel(deadline(t))
	one, other := yieldLater(ctx, term), yieldLater(ctx, term)
	var won, refused result
	select {
	case won = <-one:
	case won = <-other:
		other = one
	}
	if won.err != nil { // that was the refused one
		won, refused = await(t, "the other leads again", other), won
	} else {
		cancel() // it must not have to wait
		refused = await(t, "the other is refused", other)
	}
	cancel()
	if won.err != nil || !errors.Is(refused.err, holdfast.ErrReleased) {
		t.Errorf("one: %v, the other: %v", won.err, refused.err)
	}
}

func TestLeaderRecordsTheRunsOfItsJob(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		term := campaign(t, s.election(), "v")
		if err := term.RecordRun(deadline(t), "2026-03-29", time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := term.Resign(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if r, err := s.other(t).LastRun(deadline(t)); err != nil || r.Slot != "2026-03-29" || r.Token != term.Token() {
			t.Errorf("%+v, %v", r, err)
		}
		if err := term.RecordRun(deadline(t), "2026-03-30", 0); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("after the term: %v", err)
		}
	})
}
