package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
)

// useMutexes is one goroutine of a process: it locks, holds and unlocks, with
// contexts of all kinds, until the schedule is over.
func useMutexes(s *simulation, c *simClient, i int) {
	r := s.source(1000 + 100*uint64(c.id) + uint64(i))
	time.Sleep(upTo(r, 100*time.Millisecond)) // not all at the same instant
	for !s.stop.Load() {
		mu := locker.NewMutex(c.sess, s.names[r.IntN(len(s.names))])
		who := fmt.Sprintf("session %d goroutine %d, %s", c.id, i, mu.Name())
		bound := []time.Duration{20 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second}[r.IntN(4)]
		if s.nerve.hasty && r.IntN(4) > 0 {
			bound = 2*s.nerve.latency + time.Millisecond
		}
		bound = upTo(r, bound) + time.Nanosecond
		hold := upTo(r, []time.Duration{2 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second, 8 * time.Second}[r.IntN(4)]) + time.Nanosecond
		acquire := mu.Lock
		if r.IntN(4) == 0 {
			acquire = mu.TryLock
		}
		if r.IntN(3) == 0 {
			s.scoped(c, mu, who, bound, hold)
		} else {
			s.handle(c, mu, who, bound, hold, acquire, r)
		}
		time.Sleep(upTo(r, 100*time.Millisecond) + time.Microsecond)
	}
}

// lockOnce locks and unlocks.
func lockOnce(ctx context.Context, c *simClient, name string) (string, error) {
	lk, err := locker.NewMutex(c.sess, name).Lock(ctx)
	if err != nil {
		return "lock", err
	}
	return "unlock", lk.Unlock(ctx)
}

// handle is Lock or TryLock, and Unlock.
func (s *simulation) handle(c *simClient, mu *locker.Mutex, who string, bound, hold time.Duration, acquire func(context.Context) (*locker.Lock, error), r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	lk, err := acquire(ctx)
	s.inTime(who+" acquiring", start, bound+simGiveUp)
	if err != nil {
		return
	}
	h := s.oracle.grant(s, c, mu.Name(), who, lk)
	for range 1 + r.IntN(2) { // twice is the same as once
		select {
		case <-lk.Done():
		case <-time.After(hold):
		}
		uctx, cancel := context.WithTimeout(context.Background(), upTo(r, 2*time.Second)+time.Nanosecond)
		wait := 2 * time.Second
		if r.IntN(3) == 0 {
			cancel()
			wait = simCloseTimeout
		}
		start = s.now()
		err = lk.Unlock(uctx)
		cancel()
		s.inTime(who+" unlocking", start, wait)
		s.unlocked(h, err)
	}
}

// unlocked: nil says that the entry is gone.
func (s *simulation) unlocked(h *held, err error) {
	s.log(fmt.Sprintf("%s: unlocked, %v", h.who, err))
	switch {
	case err == nil:
		for _, kv := range s.srv.Keys(h.prefix) {
			if kv.CreateRevision == h.rev {
				s.fail("%s: Unlock returned nil and the entry stands", h.who)
			}
		}
	case errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrOutcomeUnknown):
	default:
		s.fail("%s: Unlock returned %v", h.who, err)
	}
}

// scoped is Do.
func (s *simulation) scoped(c *simClient, mu *locker.Mutex, who string, bound, hold time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	held := time.Duration(0)
	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		s.inTime(who+" acquiring in Do", start, bound+simGiveUp)
		s.oracle.grant(s, c, mu.Name(), who, lk)
		begin := s.now()
		defer func() { held = s.now() - begin }()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(hold):
			return nil
		}
	})
	s.inTime(who+" in Do", start+held, max(bound, simCloseTimeout)+simGiveUp+simCloseTimeout)
	var failed *locker.AcquireError
	if err != nil && !errors.As(err, &failed) && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
		s.fail("%s: Do returned %v", who, err)
	}
}

// inTime: a call has ended by its context.
func (s *simulation) inTime(what string, start, most time.Duration) {
	if took := s.now() - start; took > most+simSlack {
		s.fail("%s took %v, %v more than it may", what, took, took-most)
	}
}
