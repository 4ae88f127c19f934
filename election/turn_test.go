package election_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
)

// counter fails the test if two functions run at the same time.
type counter struct{ running, calls atomic.Int32 }

func (c *counter) enter(t *testing.T) (leave func()) {
	c.calls.Add(1)
	if n := c.running.Add(1); n != 1 {
		t.Errorf("%d functions run at the same time", n)
	}
	return func() { c.running.Add(-1) }
}

// After a loss the session may well lead again before the function of the lost
// term has returned. No other function may run beside it, nor queue: it would block
// the candidates of other processes.
func TestNoFunctionOverlapsOneWhoseTermWasLost(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]time.Duration{
		"while it drains": time.Hour, "after it was abandoned": time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulate(t, func(t *testing.T, s *sim) {
				el := s.election().With(opts{DrainTimeout: drain})
				var functions counter
				lost, release := make(chan *election.Term, 1), make(chan struct{})
				first := later(func() error {
					return el.WithValue("first").RunWhileLeader(deadline(t), func(ctx context.Context, term *election.Term) error {
						defer functions.enter(t)()
						s.srv.Revoke(term.Lease())
						<-ctx.Done()
						lost <- term
						<-release
						return nil
					})
				})
				old := await(t, "the first leads and loses its term", lost)
				enterAndLeave := func(context.Context, *election.Term) error { functions.enter(t)(); return nil }
				second := later(func() error { return el.WithValue("second").RunWhileLeader(deadline(t), enterAndLeave) })
				time.Sleep(10 * time.Second)
				abandoned := drain < 10*time.Second
				if len(first) != 0 != abandoned {
					t.Errorf("the first has returned: %v", len(first) != 0)
				}
				if kvs := s.entries(); len(kvs) != 0 {
					t.Errorf("the second is queued: %v", kvs)
				}

				// Campaign has no function, so it may lead.
				term := campaign(t, el, "third")
				if term.Token() <= old.Token() {
					t.Errorf("token %v after %v", term.Token(), old.Token())
				}
				resign(t, term)
				err := el.WithValue("v").RunWhileLeader(within(t, time.Second), enterAndLeave)
				if !errors.Is(err, election.ErrNotDrained) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("one more, for a second: %v", err)
				}
				err = el.WithValue("v").RunWhileLeader(fencing.NewContext(deadline(t), old), enterAndLeave)
				if !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("from within the first: %v", err)
				}
				if functions.calls.Load() != 1 {
					t.Errorf("%d functions were called", functions.calls.Load())
				}

				close(release)
				if err := await(t, "the second runs", second); err != nil {
					t.Error(err)
				}
				err = await(t, "the first returns", first)
				if !errors.Is(err, holdfast.ErrLost) || errors.Is(err, election.ErrNotDrained) != abandoned {
					t.Error(err)
				}
			})
		})
	}
}

// A call that waits for its turn is no candidate: elected beside the function of the first, it could not lead.
func TestCallThatWaitsForItsTurnDoesNotQueue(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el, other := s.election(), s.other(t)
		var functions counter
		release := make(chan struct{})
		lost := make(chan struct{})
		first := later(func() error {
			return el.WithValue("first").RunWhileLeader(deadline(t), func(ctx context.Context, term *election.Term) error {
				defer functions.enter(t)()
				<-ctx.Done()
				close(lost)
				<-release
				return nil
			})
		})
		synctest.Wait()
		second := later(func() error {
			return el.WithValue("second").RunWhileLeader(deadline(t), func(context.Context, *election.Term) error {
				functions.enter(t)()
				return nil
			})
		})
		third := campaignLater(deadline(t), other, "third")
		synctest.Wait()
		if kvs := s.entries(); len(kvs) != 2 {
			t.Errorf("the first leads and the third is queued: entries %v", kvs)
		}
		s.srv.Delete(string(s.entries()[0].Key))
		await(t, "the first loses its term", lost)
		term := won(t, third)
		if kvs := s.entries(); len(kvs) != 1 {
			t.Errorf("the second is queued beside the function of the first: entries %v", kvs)
		}
		resign(t, term)
		close(release)
		if err := await(t, "the second runs", second); err != nil {
			t.Error(err)
		}
		if err := await(t, "the first returns", first); !errors.Is(err, holdfast.ErrLost) {
			t.Error(err)
		}
	})
}

// A term may be lost before its function starts; here the auditor, which a campaign
// waits for, takes too long. Another term of the session may follow then, and would
// not find a function that has not started.
func TestNoFunctionStartsInALostTerm(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		var once sync.Once
		el := s.election().With(opts{Value: "v", Auditor: audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event == audit.Granted {
				once.Do(func() {
					s.link.BlackHole()
					time.Sleep(longOutage)
					s.link.Heal()
				})
			}
		})})
		calls := 0
		err := el.RunWhileLeader(deadline(t), func(_ context.Context, term *election.Term) error {
			calls++
			return term.Check()
		})
		if err != nil || calls != 1 {
			t.Errorf("%d calls, the last in a term with Check %v", calls, err)
		}
	})
}

func TestRunWaitsForAnAbandonedFunctionBeforeTheNextTerm(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v", DrainTimeout: time.Second})
		var functions counter
		release := make(chan struct{})
		done := later(func() error {
			return el.Run(deadline(t), func(_ context.Context, term *election.Term) error {
				defer functions.enter(t)()
				if functions.calls.Load() > 1 {
					return errWork
				}
				s.srv.Revoke(term.Lease())
				<-release
				return nil
			})
		})
		time.Sleep(time.Minute)
		if kvs := s.entries(); s.sess.Check() != nil || len(kvs) != 0 {
			t.Errorf("it queues although its function runs: session %v, entries %v", s.sess.Check(), kvs)
		}
		close(release)
		if err := await(t, "the next term", done); err != errWork || functions.calls.Load() != 2 {
			t.Errorf("%d terms, %v", functions.calls.Load(), err)
		}
	})
}

// Many calls of Run on one session, whose lease is revoked again and again.
func TestLocalFunctionsNeverOverlap(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		var functions counter
		ctx, cancel := context.WithCancel(deadline(t))
		defer cancel()
		var all sync.WaitGroup
		for i := range 4 {
			el := s.election().With(opts{Value: "v", DrainTimeout: time.Duration(i+1) * 10 * time.Millisecond})
			all.Go(func() {
				err := el.Run(ctx, func(_ context.Context, term *election.Term) error {
					defer functions.enter(t)()
					n := functions.calls.Load()
					switch {
					case n >= 200:
						cancel()
					case n%8 == 0:
						s.srv.Revoke(term.Lease())
						<-term.Done()
					case n%3 == 0:
						_ = term.Resign(ctx)
					}
					time.Sleep(time.Duration(n%4) * 10 * time.Millisecond) // regardless of its context
					return nil
				})
				if err != context.Canceled && !errors.Is(err, election.ErrNotDrained) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second) // abandoned functions return
		if functions.running.Load() != 0 || functions.calls.Load() < 200 {
			t.Errorf("%d functions run, %d were called", functions.running.Load(), functions.calls.Load())
		}
	})
}
