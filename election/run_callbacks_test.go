package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
)

// story records the callbacks that were made.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *story) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

func TestCallbacksAreMadeInOrder(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		var told story
		number := make(map[*election.Term]int) // used by callbacks only, one at a time
		el := s.election().With(opts{
			Value: "v",
			OnElected: func(term *election.Term) {
				number[term] = len(number) + 1
				told.add("elected %d", number[term])
			},
			OnDeposed: func(term *election.Term, reason error) {
				var lost *holdfast.LostError
				switch {
				case errors.As(reason, &lost):
					told.add("deposed %d: %v", number[term], lost.Cause)
				case reason == holdfast.ErrReleased:
					told.add("deposed %d: released", number[term])
				default:
					told.add("deposed %d: %v", number[term], reason)
				}
				if number[term] == 2 {
					panic("a bug of the user's")
				}
			},
		})
		terms := 0
		err := el.Run(deadline(t), func(_ context.Context, term *election.Term) error {
			switch terms++; terms {
			case 1:
				return nil
			case 2:
				s.srv.Revoke(term.Lease())
				synctest.Wait()
				if got := told.all(); got[len(got)-1] != "deposed 2: revoked" {
					t.Errorf("while the function is still running: %q", got)
				}
				return nil
			}
			return errWork
		})
		if err != errWork {
			t.Error(err)
		}
		want := []string{
			"elected 1", "deposed 1: released", "elected 2", "deposed 2: revoked", "elected 3", "deposed 3: released",
		}
		if got := told.all(); !slices.Equal(got, want) {
			t.Errorf("callbacks %q, want %q", got, want)
		}
	})
}

func TestOnDeposedIsNotCalledForACandidate(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		campaign(t, s.other(t), "leader")
		var told story
		el := s.election().With(opts{
			Value:     "v",
			OnElected: func(*election.Term) { told.add("elected") },
			OnDeposed: func(*election.Term, error) { told.add("deposed") },
		})
		ctx, cancel := context.WithCancel(deadline(t))
		done := later(func() error {
			return el.Run(ctx, func(context.Context, *election.Term) error { return nil })
		})
		old := s.entries()[1]
		s.srv.Revoke(s.sess.Lease())
		time.Sleep(time.Second)
		if kvs := s.entries(); len(kvs) != 2 || kvs[1].Lease == old.Lease {
			t.Errorf("it did not queue again: %v", kvs)
		}
		cancel()
		if err := await(t, "Run returns", done); err != context.Canceled {
			t.Error(err)
		}
		if got := told.all(); len(got) != 0 {
			t.Errorf("callbacks %q", got)
		}
	})
}

// Invariant 11.
func TestCallbackThatBlocksDelaysNothingButItself(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		release, deposed := make(chan struct{}), make(chan struct{}, 16)
		el := s.election().With(opts{
			Value:     "v",
			OnElected: func(*election.Term) { <-release },
			OnDeposed: func(*election.Term, error) { deposed <- struct{}{} },
		})
		terms := 0
		err := el.Run(deadline(t), func(_ context.Context, term *election.Term) error {
			if terms++; terms < 4 {
				return nil
			}
			time.Sleep(time.Minute)
			if term.Check() != nil {
				t.Errorf("the lease is not renewed: %v", term.Check())
			}
			return errWork
		})
		if err != errWork || terms != 4 {
			t.Errorf("%d terms, %v", terms, err)
		}
		if !s.log.has("callback=OnElected") {
			t.Error("the callback that is stuck was not logged")
		}
		close(release)
		for range 4 {
			await(t, "OnDeposed is called after all", deposed)
		}
	})
}
