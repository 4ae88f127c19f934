package election_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/session"
)

// With the default TTL of 15 s a session is suspended 6.75 s after its last
// confirmed renewal, and lost after 13.5 s. When an outage begins that renewal
// may lie five seconds back.
const (
	shortOutage = 8 * time.Second
	longOutage  = 20 * time.Second
)

// cutOff runs f in virtual time with a session whose link f may cut.
func cutOff(t *testing.T, log *logs, f func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, sess *session.Session)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		t.Cleanup(srv.Close)
		link := srv.Link()
		o := session.Options{Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler)}
		if log != nil {
			o.Logger = log.logger()
		}
		sess := open(t, link.Client(), o)
		t.Cleanup(link.Heal)
		f(t, srv, link, sess)
	})
}

// fails are ways in which a function ends whose context has.
var fails = map[string]func(ctx context.Context) error{
	"nothing":               func(context.Context) error { return nil },
	"its context's error":   func(ctx context.Context) error { return ctx.Err() },
	"its context's cause":   context.Cause,
	"a cancelled gRPC call": func(context.Context) error { return status.Error(codes.Canceled, "context canceled") },
	"an error of its own":   func(context.Context) error { return errWork },
}

// An outage that is short enough for the lease to survive it moves no
// leadership: the function is called again, in the same term.
func TestRunGoesOnInTheSameTermAfterAShortOutage(t *testing.T) {
	t.Parallel()
	for what, end := range fails {
		t.Run("the function returns "+what, func(t *testing.T) {
			t.Parallel()
			cutOff(t, nil, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, sess *session.Session) {
				var told story
				el := election.New(sess, "x").With(opts{
					CancelOnSuspended: true,
					OnElected:         func(*election.Term) { told.say("elected") },
					OnDeposed:         func(*election.Term, error) { told.say("deposed") },
				})
				var terms []*election.Term
				err := el.Run(t.Context(), "v", func(ctx context.Context, term *election.Term) error {
					terms = append(terms, term)
					if len(terms) == 3 {
						return errWork // in a term that is held: it ends Run
					}
					link.BlackHole()
					time.AfterFunc(shortOutage, link.Heal)
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), holdfast.ErrSuspended) {
						t.Errorf("its context has ended with %v", context.Cause(ctx))
					}
					return end(ctx)
				})
				if !errors.Is(err, errWork) || len(terms) != 3 {
					t.Fatalf("%d calls, %v", len(terms), err)
				}
				if terms[1] != terms[0] || terms[2] != terms[0] {
					t.Error("the function was called with another term", terms[0].Check())
				}
				if got := told.all(); !slices.Equal(got, []string{"elected", "deposed"}) {
					t.Errorf("told %q", got)
				}
			})
		})
	}
}

// Where the lease did not survive, or the entry was deleted meanwhile, the next
// term follows, whatever the function has returned.
func TestRunTakesTheNextTermWhenTheOutageCostThisOne(t *testing.T) {
	t.Parallel()
	for what, end := range fails {
		for outage, happen := range map[string]func(srv *etcdfake.Server, link *etcdfake.Link, term *election.Term){
			"the lease expires": func(_ *etcdfake.Server, link *etcdfake.Link, _ *election.Term) {
				time.AfterFunc(longOutage, link.Heal)
			},
			"the entry is deleted": func(srv *etcdfake.Server, link *etcdfake.Link, term *election.Term) {
				srv.Delete(term.Key())
				time.AfterFunc(shortOutage, func() {
					// The audit, a Txn, must not be the one to find it out.
					link.Plan(func(c etcdfake.Call) etcdfake.Fate {
						return etcdfake.Fate{LoseRequest: c.Method == "Txn", Silent: true}
					})
				})
				time.AfterFunc(shortOutage+5*time.Second, link.Heal)
			},
		} {
			t.Run(outage+", the function returns "+what, func(t *testing.T) {
				t.Parallel()
				cutOff(t, nil, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, sess *session.Session) {
					el := election.New(sess, "x").With(opts{CancelOnSuspended: true})
					var terms []*election.Term
					err := el.Run(t.Context(), "v", func(ctx context.Context, term *election.Term) error {
						if terms = append(terms, term); len(terms) == 2 {
							return errWork
						}
						link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseRequest: true, Silent: true} })
						happen(srv, link, term)
						<-ctx.Done()
						return end(ctx)
					})
					if !errors.Is(err, errWork) || len(terms) != 2 || terms[1].Token() <= terms[0].Token() {
						t.Errorf("%d terms, %v", len(terms), err)
					}
					if !errors.Is(terms[0].Check(), holdfast.ErrLost) {
						t.Errorf("the first term: %v", terms[0].Check())
					}
				})
			})
		}
	}
}

func TestRunThatWaitsForAReconnectionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cutOff(t, nil, func(t *testing.T, _ *etcdfake.Server, link *etcdfake.Link, sess *session.Session) {
		ctx, cancel := context.WithCancel(t.Context())
		el := election.New(sess, "x").With(opts{CancelOnSuspended: true})
		calls := 0
		var term *election.Term
		err := el.Run(ctx, "v", func(ctx context.Context, held *election.Term) error {
			calls++
			term = held
			link.BlackHole()
			<-ctx.Done()
			time.AfterFunc(time.Second, cancel) // Run waits by then
			time.AfterFunc(2*time.Second, link.Heal)
			return errWork
		})
		if err != context.Canceled || calls != 1 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if term.Check() != holdfast.ErrReleased {
			t.Errorf("the term: %v", term.Check())
		}
	})
}

// A function that finds out by Check, an instant before its context ends, and
// returns that, has not failed.
func TestFunctionThatSaysItIsSuspendedDoesNotEndRun(t *testing.T) {
	t.Parallel()
	cutOff(t, nil, func(t *testing.T, _ *etcdfake.Server, link *etcdfake.Link, sess *session.Session) {
		el := election.New(sess, "x").With(opts{CancelOnSuspended: true})
		var terms []*election.Term
		err := el.Run(t.Context(), "v", func(_ context.Context, term *election.Term) error {
			if terms = append(terms, term); len(terms) == 2 {
				return errWork
			}
			link.BlackHole()
			time.AfterFunc(shortOutage, link.Heal)
			for term.Check() == nil {
				time.Sleep(time.Millisecond)
			}
			return term.Check()
		})
		if !errors.Is(err, errWork) || len(terms) != 2 || terms[1] != terms[0] {
			t.Errorf("%d calls, %v", len(terms), err)
		}
	})
}

// What a function returns after it has stepped down by itself does not end Run
// either: its context had ended.
func TestErrorOfAFunctionWhoseContextHasEndedIsLogged(t *testing.T) {
	t.Parallel()
	var log logs
	cutOff(t, &log, func(t *testing.T, _ *etcdfake.Server, _ *etcdfake.Link, sess *session.Session) {
		calls := 0
		why := errors.New("the disk is full")
		err := election.New(sess, "x").Run(t.Context(), "v", func(ctx context.Context, term *election.Term) error {
			if calls++; calls == 2 {
				return errWork
			}
			resign(t, term)
			<-ctx.Done()
			return why
		})
		if !errors.Is(err, errWork) || calls != 2 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if !log.has(why.Error()) {
			t.Error("the error was not logged")
		}
	})
}

// RunWhileLeader leads once, and says how that ended.
func TestRunWhileLeaderReturnsWhatItsFunctionDoesAfterASuspension(t *testing.T) {
	t.Parallel()
	cutOff(t, nil, func(t *testing.T, _ *etcdfake.Server, link *etcdfake.Link, sess *session.Session) {
		el := election.New(sess, "x").With(opts{CancelOnSuspended: true})
		calls := 0
		err := el.RunWhileLeader(t.Context(), "v", func(ctx context.Context, _ *election.Term) error {
			calls++
			link.BlackHole()
			time.AfterFunc(shortOutage, link.Heal)
			<-ctx.Done()
			return errWork
		})
		if err != errWork || calls != 1 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}
