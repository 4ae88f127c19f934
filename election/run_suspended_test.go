package election_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// With the default TTL of 15 s a session is suspended 6.75 s after its last
// confirmed renewal, and lost after 13.5 s. When an outage begins that renewal may
// be five seconds old.
const (
	shortOutage = 8 * time.Second
	longOutage  = 20 * time.Second
)

// endings are what a function may return after its context has ended.
var endings = map[string]func(ctx context.Context) error{
	"nil":                  func(context.Context) error { return nil },
	"its context's error":  func(ctx context.Context) error { return ctx.Err() },
	"its context's cause":  context.Cause,
	"a canceled gRPC call": func(context.Context) error { return status.Error(codes.Canceled, "context canceled") },
	"an error of its own":  func(context.Context) error { return errWork },
}

// The next term is of another entry: who does not work does not lead.
func TestRunResignsAfterASuspensionAndCampaignsAgain(t *testing.T) {
	t.Parallel()
	for what, end := range endings {
		t.Run("the function returns "+what, func(t *testing.T) {
			t.Parallel()
			simulate(t, func(t *testing.T, s *sim) {
				el := s.election().With(opts{Value: "v", CancelOnSuspended: true})
				var terms []*election.Term
				err := el.Run(t.Context(), func(ctx context.Context, term *election.Term) error {
					if terms = append(terms, term); len(terms) == 3 {
						return errWork // in a term that is held: this ends Run
					}
					s.link.BlackHole()
					time.AfterFunc(shortOutage, s.link.Heal)
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), holdfast.ErrSuspended) {
						t.Errorf("the context ended with %v", context.Cause(ctx))
					}
					return end(ctx)
				})
				if !errors.Is(err, errWork) || len(terms) != 3 {
					t.Fatalf("%d calls, %v", len(terms), err)
				}
				for i, term := range terms {
					if term.Check() != holdfast.ErrReleased || i > 0 && term.Token() <= terms[i-1].Token() {
						t.Errorf("term %d: token %v, %v", i, term.Token(), term.Check())
					}
				}
			})
		})
	}
}

func TestRunCampaignsAgainAfterAnOutageThatCostItsTerm(t *testing.T) {
	t.Parallel()
	for what, end := range endings {
		for outage, start := range map[string]func(s *sim, term *election.Term){
			"the lease expires": func(s *sim, _ *election.Term) {
				time.AfterFunc(longOutage, s.link.Heal)
			},
			"the entry is deleted": func(s *sim, term *election.Term) {
				s.srv.Delete(term.Key())
				time.AfterFunc(shortOutage, func() {
					// The poll for deleted entries, a Txn, must not find it first.
					s.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
						return etcdfake.Fate{LoseRequest: c.Method == "Txn", Silent: true}
					})
				})
				time.AfterFunc(shortOutage+5*time.Second, s.link.Heal)
			},
		} {
			t.Run(outage+", the function returns "+what, func(t *testing.T) {
				t.Parallel()
				simulate(t, func(t *testing.T, s *sim) {
					el := s.election().With(opts{Value: "v", CancelOnSuspended: true})
					var terms []*election.Term
					err := el.Run(t.Context(), func(ctx context.Context, term *election.Term) error {
						if terms = append(terms, term); len(terms) == 2 {
							return errWork
						}
						s.link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseRequest: true, Silent: true} })
						start(s, term)
						<-ctx.Done()
						return end(ctx)
					})
					if !errors.Is(err, errWork) || len(terms) != 2 || terms[1].Token() <= terms[0].Token() {
						t.Errorf("%d terms, %v", len(terms), err)
					}
					if terms[0].Check() != holdfast.ErrReleased { // its function had returned before the loss
						t.Errorf("the first term: %v", terms[0].Check())
					}
				})
			})
		}
	}
}

// Check judges by the clock, so it may report a suspension before a timer has ended the context: after a pause of the
// machine, for one. To return that is no failure.
func TestRunSurvivesAFunctionThatReturnsASuspensionFromCheck(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		clock, jumped := session.MonotonicClock(), atomic.Int64{}
		sess, err := session.New(t.Context(), s.link.Client(), session.Options{
			Clock:  func() time.Duration { return clock() + time.Duration(jumped.Load()) },
			Logger: s.log.logger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sess.Close(context.Background()) })
		el := election.New(sess, "x").With(opts{Value: "v", CancelOnSuspended: true})
		var terms []*election.Term
		err = el.Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			if terms = append(terms, term); len(terms) == 2 {
				return errWork
			}
			jumped.Add(int64(shortOutage))
			err := term.Check()
			if ctx.Err() != nil || !errors.Is(err, holdfast.ErrSuspended) {
				t.Errorf("this tests nothing: Check returned %v, the context %v", err, ctx.Err())
			}
			return err
		})
		if !errors.Is(err, errWork) || len(terms) != 2 || terms[1] == terms[0] {
			t.Errorf("%d calls, %v", len(terms), err)
		}
	})
}

func TestRunWhileLeaderReturnsAfterASuspension(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v", CancelOnSuspended: true})
		for _, tc := range []struct {
			end  func(context.Context) error
			want error
		}{
			{func(context.Context) error { return errWork }, errWork},
			{context.Cause, holdfast.ErrSuspended},
		} {
			calls := 0
			err := el.RunWhileLeader(t.Context(), func(ctx context.Context, term *election.Term) error {
				calls++
				s.link.BlackHole()
				time.AfterFunc(shortOutage, s.link.Heal)
				<-ctx.Done()
				if !errors.Is(term.Check(), holdfast.ErrSuspended) {
					t.Errorf("Check: %v", term.Check())
				}
				return tc.end(ctx)
			})
			if !errors.Is(err, tc.want) || calls != 1 {
				t.Errorf("%d calls, %v", calls, err)
			}
		}
	})
}
