package simulation

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
	"github.com/holdfast-go/holdfast/view"
)

// The same schedules and the same oracle as in TestSimulationOfMutexes, with candidates
// and observers.
func TestSimulationOfElections(t *testing.T) {
	simulateAll(t, 4, shows{oracle.Granted: 30}, func(seed uint64) *simulation {
		return &simulation{seed: seed, work: useElections, once: leadOnce, administered: true, kind: holdfast.KindElection}
	})
}

// leadOnce campaigns and resigns.
func leadOnce(ctx context.Context, c *process, name string) (string, error) {
	term, err := election.New(c.session(), name).With(election.Options{Value: "last"}).Campaign(ctx)
	if err != nil {
		return "lead", err
	}
	return "resign", term.Resign(ctx)
}

// leadWhile leads in a function that heeds its context, and so never outlives its term.
func (s *simulation) leadWhile(c *process, el *election.Election, who string, bound, hold time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	slept := c.offset.Load()
	el = el.With(election.Options{Value: who, OnOverrun: func(lost *holdfast.LostError, since time.Time) {
		if slept == c.offset.Load() { // otherwise the loss was noticed when it had no time left
			s.fail("%s heeds its context, and outlives its term by %v: %v", who, time.Since(since), lost)
		}
	}})
	err := el.RunWhileLeader(ctx, func(ctx context.Context, term *election.Term) error {
		s.granted(c, who, term, oracle.Part{Prefix: oracle.Keys + "election/" + el.Name() + "/@/"})
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(hold):
			return nil
		}
	})
	var failed *view.AcquireError
	if err != nil && !errors.As(err, &failed) && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
		s.fail("%s: RunWhileLeader returned %v", who, err)
	}
}

// useElections is one goroutine of a process. The first of each process observes, the
// others campaign, lead, proclaim, and resign or yield.
func useElections(s *simulation, c *process, i int) {
	r := s.source(2000 + 100*uint64(c.id) + uint64(i))
	scoped := s.source(3000 + 100*uint64(c.id) + uint64(i))
	time.Sleep(family.UpTo(r, 100*time.Millisecond)) // so that goroutines do not start at the same instant
	for !s.stop.Load() {
		el := election.New(c.session(), s.names[r.IntN(len(s.names))])
		who := fmt.Sprintf("session %d goroutine %d, %s", c.id, i, el.Name())
		bounds := []time.Duration{20 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second}
		bound := family.UpTo(r, bounds[r.IntN(4)]) + time.Nanosecond
		if i == 0 {
			s.observeLeaders(el, who, bound)
			time.Sleep(family.UpTo(r, time.Second) + time.Microsecond)
			continue
		}
		if scoped.IntN(4) == 0 {
			s.leadWhile(c, el, who, bound, family.UpTo(scoped, 4*time.Second))
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		start := s.now()
		term, err := el.With(election.Options{Value: who}).Campaign(ctx)
		s.checkDuration(who+" campaigning", start, bound+giveUp)
		cancel()
		if err == nil {
			h := s.granted(c, who, term, oracle.Part{Prefix: oracle.Keys + "election/" + el.Name() + "/@/"})
			select {
			case <-term.Done():
			case <-time.After(family.UpTo(r, 2*time.Second)):
			}
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			if r.IntN(2) == 0 {
				start = s.now()
				err := term.Proclaim(ctx, who+" proclaimed")
				s.checkDuration(who+" proclaiming", start, bound)
				if held := term.Check(); err == nil && errors.Is(held, holdfast.ErrReleased) {
					s.fail("%s: Proclaim succeeded, and Check returns %v", who, held)
				}
			}
			start = s.now()
			resigned := term.Resign(ctx)
			s.checkDuration(who+" resigning", start, max(bound, closeTimeout))
			cancel()
			s.released(h, resigned)
		}
		time.Sleep(family.UpTo(r, 100*time.Millisecond) + time.Microsecond)
	}
}

// observeLeaders observes for d. The tokens of the leaders must not decrease.
func (s *simulation) observeLeaders(el *election.Election, who string, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	start := s.now()
	var last holdfast.Token
	for l, err := range el.Watch(ctx) {
		switch {
		case err != nil && ctx.Err() == nil && !errors.Is(err, holdfast.ErrClosed):
			s.fail("%s: Watch ended with %v", who, err)
		case err == nil && l.Token != 0 && l.Token < last:
			s.fail("%s: observed token %v after %v", who, l.Token, last)
		case err == nil && l.Token != 0:
			last = l.Token
		}
	}
	s.checkDuration(who+" observing", start, d+attempt)
}
