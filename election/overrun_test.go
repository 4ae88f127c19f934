package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

// overrun is a call of OnOverrun.
type overrun struct {
	lost      *holdfast.LostError
	since, at time.Time
}

type overruns chan overrun

func (o overruns) add(lost *holdfast.LostError, since time.Time) {
	o <- overrun{lost, since, time.Now()}
}

func TestFunctionThatOutlivesItsTermIsTold(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		told, leads, finish := make(overruns, 2), make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ran := later(func() error {
			return s.election().With(opts{Value: "v", OnOverrun: told.add}).Run(ctx,
				func(context.Context, *election.Term) error {
					close(leads)
					<-finish
					return nil
				})
		})
		await(t, "it leads", leads)
		next := campaignLater(deadline(t), s.other(t), "next")
		time.Sleep(time.Minute)
		s.link.BlackHole()
		o := await(t, "OnOverrun is called", told)
		if o.lost.Cause != holdfast.CauseExpired || o.lost.Kind != holdfast.KindElection || o.lost.Name != "x" {
			t.Errorf("told of %v", o.lost)
		}
		if grace := o.at.Sub(o.since); grace != 750*time.Millisecond || len(next) > 0 {
			t.Errorf("told %v after the loss, the next one leads: %v", grace, len(next) > 0)
		}
		term := won(t, next)
		time.Sleep(time.Minute) // longer than DrainTimeout
		s.link.Heal()
		cancel()
		close(finish)
		<-ran
		if len(told) > 0 {
			t.Errorf("told again: %v", (<-told).lost)
		}
		_ = term.Resign(t.Context())
	})
}

// A function that was told of the loss, and has given up its term or closed the session, goes on with something else,
// also for longer than DrainTimeout.
func TestFunctionThatGivesUpItsTermAfterTheLossIsNotTold(t *testing.T) {
	for name, giveUp := range map[string]func(s *sim, term *election.Term){
		"Resign": func(_ *sim, term *election.Term) { _ = term.Resign(context.Background()) },
		"Close":  func(s *sim, _ *election.Term) { _ = s.sess.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *sim) {
				told := make(overruns, 1)
				o := opts{OnOverrun: told.add}
				_ = s.election().With(o).RunWhileLeader(t.Context(), func(ctx context.Context, term *election.Term) error {
					s.srv.Revoke(term.Lease())
					<-ctx.Done()
					giveUp(s, term)
					time.Sleep(2 * time.Minute)
					return nil
				})
				time.Sleep(2 * time.Minute) // the function has returned
				if len(told) > 0 {
					t.Errorf("told of %v", (<-told).lost)
				}
			})
		})
	}
}

// The process may end in OnOverrun, so the entry stands until it returns.
func TestFunctionThatOutlivesDrainTimeoutIsToldBeforeTheNextOneLeads(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		finish := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var next <-chan result
		calls := 0
		el := s.election().With(opts{
			Value:        "v",
			DrainTimeout: 7 * time.Second,
			OnOverrun: func(lost *holdfast.LostError, since time.Time) {
				calls++
				if ago := time.Since(since); lost.Cause != holdfast.CauseNotDrained || ago != 7*time.Second {
					t.Errorf("told %v after: %v", ago, lost)
				}
				time.Sleep(time.Minute) // as long as it takes to write stacks
				if len(next) > 0 {
					t.Error("the next one leads")
				}
			},
		})
		err := el.RunWhileLeader(ctx, func(context.Context, *election.Term) error {
			next = campaignLater(deadline(t), s.other(t), "next")
			cancel()
			<-finish
			return nil
		})
		if !errors.Is(err, election.ErrNotDrained) || calls != 1 {
			t.Errorf("told %d times, returned %v", calls, err)
		}
		_ = won(t, next).Resign(t.Context())
		close(finish)
		time.Sleep(time.Minute)
	})
}

func TestFunctionThatEndsInTimeIsNotTold(t *testing.T) {
	const suspension = "within DrainTimeout of a suspension"
	for name, f := range map[string]func(s *sim, ctx context.Context, term *election.Term, cancel func()){
		"with its context": func(s *sim, ctx context.Context, _ *election.Term, _ func()) {
			s.link.BlackHole()
			<-ctx.Done()
			s.link.Heal()
		},
		"within DrainTimeout of a shutdown": func(_ *sim, _ context.Context, _ *election.Term, cancel func()) {
			cancel()
			time.Sleep(20 * time.Second)
		},
		"after it has resigned": func(_ *sim, _ context.Context, term *election.Term, cancel func()) {
			_ = term.Resign(context.Background())
			time.Sleep(time.Hour)
		},
		"after the session was closed": func(s *sim, _ context.Context, _ *election.Term, _ func()) {
			_ = s.sess.Close(context.Background())
			time.Sleep(time.Hour)
		},
		suspension: func(s *sim, ctx context.Context, term *election.Term, _ func()) {
			s.link.BlackHole()
			<-ctx.Done()
			time.Sleep(time.Second)
			s.link.Heal()
			time.Sleep(20 * time.Second) // less than DrainTimeout
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *sim) {
				told := make(overruns, 2)
				ctx, cancel := context.WithCancel(t.Context())
				el := s.election().With(opts{Value: "v", OnOverrun: told.add, CancelOnSuspended: name == suspension})
				_ = el.RunWhileLeader(ctx, func(ctx context.Context, term *election.Term) error {
					f(s, ctx, term, cancel)
					return nil
				})
				cancel()
				time.Sleep(time.Hour)
				if len(told) > 0 {
					t.Errorf("told of %v", (<-told).lost)
				}
			})
		})
	}
}
