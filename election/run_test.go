package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

func TestRunLeadsTermAfterTermUntilItsFunctionFails(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		var tokens []holdfast.Token
		err := s.election().With(opts{Value: "v"}).Run(deadline(t), func(ctx context.Context, term *election.Term) error {
			if len(tokens) > 0 && term.Token() <= tokens[len(tokens)-1] {
				t.Errorf("token %v after %v", term.Token(), tokens)
			}
			if err := term.Check(); err != nil {
				t.Errorf("term %d begins with %v", len(tokens)+1, err)
			}
			tokens = append(tokens, term.Token())
			switch len(tokens) {
			case 1:
				return nil
			case 2: // lost; the function says so
				s.srv.Revoke(term.Lease())
				<-ctx.Done()
				return context.Cause(ctx)
			case 3: // lost; the function fails because of it
				s.srv.Revoke(term.Lease())
				<-ctx.Done()
				return errWork
			case 4: // resigned by the function
				resign(t, term)
				return ctx.Err()
			case 5:
				return nil
			}
			return fmt.Errorf("term %d: %w", len(tokens), errWork)
		})
		if !errors.Is(err, errWork) || errors.Is(err, holdfast.ErrLost) || len(tokens) != 6 {
			t.Errorf("%d terms, %v", len(tokens), err)
		}
		if kvs := s.entries(); len(kvs) != 0 {
			t.Errorf("entries %v", kvs)
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	neverCalled := func(context.Context, *election.Term) error { return errors.New("the function was called") }
	for name, tc := range map[string]struct {
		fn   func(ctx context.Context) error
		want error
	}{
		"the function returns nil":                 {func(context.Context) error { return nil }, context.Canceled},
		"the function returns its context's error": {func(ctx context.Context) error { return ctx.Err() }, context.Canceled},
		"the function returns another error":       {func(context.Context) error { return errWork }, errWork},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *sim) {
				ctx, cancel := context.WithCancel(t.Context())
				err := s.election().With(opts{Value: "v"}).Run(ctx, func(ctx context.Context, _ *election.Term) error {
					cancel()
					<-ctx.Done()
					return tc.fn(ctx)
				})
				if err != tc.want {
					t.Error(err)
				}
			})
		})
	}
	t.Run("while queued", func(t *testing.T) {
		simulate(t, func(t *testing.T, s *sim) {
			campaign(t, s.other(t), "leader")
			if err := s.election().Run(within(t, time.Second), neverCalled); err != context.DeadlineExceeded {
				t.Error(err)
			}
		})
	})
	t.Run("while the function does not return", func(t *testing.T) {
		simulate(t, func(t *testing.T, s *sim) {
			ctx, cancel := context.WithCancel(t.Context())
			release := make(chan struct{})
			defer close(release)
			err := s.election().With(opts{Value: "v"}).Run(ctx, func(context.Context, *election.Term) error {
				cancel()
				<-release
				return nil
			})
			if !errors.Is(err, election.ErrNotDrained) {
				t.Error(err)
			}
			if kvs := s.entries(); len(kvs) != 0 {
				t.Errorf("entries %v", kvs)
			}
			err = s.election().With(opts{Value: "v"}).Run(within(t, time.Second), neverCalled)
			if !errors.Is(err, election.ErrNotDrained) {
				t.Errorf("a second Run, while that function runs: %v", err)
			}
		})
	})
	t.Run("with its session", func(t *testing.T) {
		simulate(t, func(t *testing.T, s *sim) {
			err := s.election().With(opts{Value: "v"}).Run(deadline(t), func(ctx context.Context, _ *election.Term) error {
				_ = s.sess.Close(deadline(t))
				<-ctx.Done()
				return nil
			})
			if !errors.Is(err, holdfast.ErrClosed) {
				t.Error(err)
			}
		})
	})
	t.Run("with a session that stays lost", func(t *testing.T) {
		simulate(t, func(t *testing.T, s *sim) {
			sess := open(t, s.srv.Client(t), session.Options{StayLost: true})
			err := election.New(sess, "x").With(opts{Value: "v"}).Run(deadline(t),
				func(ctx context.Context, term *election.Term) error {
					s.srv.Revoke(term.Lease())
					<-ctx.Done()
					return nil
				})
			var failed *view.AcquireError
			if !errors.Is(err, holdfast.ErrLost) || !errors.As(err, &failed) {
				t.Error(err)
			}
		})
	})
}

func TestRunRetriesAFailedCampaign(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		s.srv.Put("holdfast/epoch", "junk") // which no retry inside Campaign can change
		done := later(func() error {
			return s.election().With(opts{Value: "v"}).Run(deadline(t),
				func(context.Context, *election.Term) error { return errWork })
		})
		time.Sleep(10 * time.Second)
		if !s.log.has("campaign failed") {
			t.Error("the failure was not logged")
		}
		s.srv.Delete("holdfast/epoch")
		if err := await(t, "it leads", done); err != errWork {
			t.Error(err)
		}
	})
}

// An operator sees each election and its end once, with kind and name first.
func TestRunLogsEachTermOnce(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		calls := 0
		err := s.election().With(opts{Value: "v", CancelOnSuspended: true}).Run(deadline(t),
			func(ctx context.Context, term *election.Term) error {
				switch calls++; calls {
				case 1: // resigned
					return nil
				case 2: // suspended: resigned, too
					s.link.BlackHole()
					time.AfterFunc(shortOutage, s.link.Heal)
					<-ctx.Done()
					return context.Cause(ctx)
				case 3: // lost
					s.srv.Delete(term.Key())
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return errWork
			})
		if err != errWork {
			t.Fatal(err)
		}
		for message, want := range map[string]int{
			"elected": 4, "resigned": 3, "lost": 1,
		} {
			lines := s.log.lines(`holdfast: ` + message)
			if len(lines) != want {
				t.Errorf("%q is logged %d times, want %d: %q", message, len(lines), want, lines)
			}
			for _, line := range lines {
				if !strings.Contains(line, "kind=election name=x") {
					t.Errorf("no kind and name in %q", line)
				}
			}
		}
		if lines := s.log.lines("function failed"); len(lines) != 0 {
			t.Errorf("the end of a context is logged as a failure: %q", lines)
		}
	})
}

// An error after the function's context has ended does not end Run, even if the
// function ended it by resigning.
func TestRunLogsTheErrorOfAFunctionWhoseContextHasEnded(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		calls := 0
		diskFull := errors.New("the disk is full")
		err := s.election().With(opts{Value: "v"}).Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			if calls++; calls == 2 {
				return errWork
			}
			resign(t, term)
			<-ctx.Done()
			return diskFull
		})
		if !errors.Is(err, errWork) || calls != 2 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if !s.log.has(diskFull.Error()) {
			t.Error("the error was not logged")
		}
	})
}

func TestRunWhileLeaderLeadsOneTermAndResigns(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v"})
		for _, want := range []error{nil, errWork} {
			var term *election.Term
			err := el.RunWhileLeader(deadline(t), func(ctx context.Context, held *election.Term) error {
				term = held
				if h, ok := fencing.FromContext(ctx); !ok || h != fencing.Holder(held) || held.Check() != nil || ctx.Err() != nil {
					t.Errorf("in the function: %v, %v, %v", h, held.Check(), ctx.Err())
				}
				if leader, err := el.Leader(ctx); err != nil || leader.Token != held.Token() {
					t.Errorf("in the function: %+v, %v", leader, err)
				}
				return want
			})
			if err != want {
				t.Errorf("returned %v, want %v", err, want)
			}
			if term.Check() != holdfast.ErrReleased || len(s.entries()) != 0 {
				t.Errorf("afterwards: %v, entries %v", term.Check(), s.entries())
			}
		}
	})
}

func TestRunWhileLeaderJoinsALossToTheFunctionsError(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		lose := func(end func(context.Context) error) error {
			return s.election().With(opts{Value: "v"}).RunWhileLeader(deadline(t),
				func(ctx context.Context, term *election.Term) error {
					s.srv.Revoke(term.Lease())
					<-ctx.Done()
					return end(ctx)
				})
		}
		for _, own := range []error{nil, errWork} {
			err := lose(func(context.Context) error { return own })
			var lost *holdfast.LostError
			if !errors.As(err, &lost) || lost.Cause != holdfast.CauseRevoked || lost.Name != "x" ||
				own != nil && !errors.Is(err, own) {
				t.Errorf("the function returned %v, RunWhileLeader %v", own, err)
			}
		}
		err := lose(context.Cause)
		if _, ok := err.(*holdfast.LostError); !ok {
			t.Errorf("the loss is reported twice: %v", err)
		}
	})
}

func TestRunWhileLeaderIgnoresAnUnansweredResignation(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.election().With(opts{Value: "v"}).RunWhileLeader(ctx, func(context.Context, *election.Term) error {
			s.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				return etcdfake.Fate{LoseRequest: c.Method == "Txn", Silent: true}
			})
			cancel()
			return nil
		})
		if err != nil || len(s.entries()) != 1 {
			t.Errorf("%v, entries %v", err, s.entries())
		}
		s.link.Heal()
		time.Sleep(10 * time.Second)
		if kvs := s.entries(); len(kvs) != 0 {
			t.Errorf("entries %v", kvs)
		}
	})
}

// As "for { el.Run }" does. After a term that lasted, Run begins at once.
func TestRunAfterAFailureBeginsASecondAfterThatTerm(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v"})
		terms := func(last time.Duration) (n int) {
			for start := time.Now(); time.Since(start) < time.Minute; n++ {
				err := el.Run(deadline(t), func(context.Context, *election.Term) error {
					time.Sleep(last)
					return errWork
				})
				if !errors.Is(err, errWork) {
					t.Fatal(err)
				}
			}
			return n
		}
		if n := terms(0); n < 55 || n > 61 {
			t.Errorf("%d terms in a minute", n)
		}
		if n := terms(time.Second); n < 55 {
			t.Errorf("%d terms of a second in a minute", n)
		}
	})
}
