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

// useMutexes is one goroutine of a process: it acquires, holds and releases locks with
// short and long deadlines until the schedule ends.
func useMutexes(s *simulation, c *simClient, i int) {
	r := s.source(1000 + 100*uint64(c.id) + uint64(i))
	time.Sleep(upTo(r, 100*time.Millisecond)) // so that goroutines do not start at the same instant
	for !s.stop.Load() {
		mu := locker.NewMutex(c.sess, s.names[r.IntN(len(s.names))])
		who := fmt.Sprintf("session %d goroutine %d, %s", c.id, i, mu.Name())
		bound := []time.Duration{20 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second}[r.IntN(4)]
		if s.profile.hasty && r.IntN(4) > 0 {
			bound = 2*s.profile.latency + time.Millisecond
		}
		bound = upTo(r, bound) + time.Nanosecond
		holds := []time.Duration{2 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second, 8 * time.Second}
		hold := upTo(r, holds[r.IntN(4)]) + time.Nanosecond
		switch {
		case s.readers && r.IntN(3) > 0:
			s.useLock(c, mu.Name(), who+" reading", bound, hold, readWith(locker.NewRWMutex(c.sess, mu.Name()), r), r)
		case s.minHold && r.IntN(2) == 0:
			s.useMinHold(c, mu, who, bound, hold, upTo(r, 5*time.Second)+time.Nanosecond)
			continue
		case r.IntN(3) == 0:
			s.useDo(c, mu, who, bound, hold)
		default:
			s.useLock(c, mu.Name(), who, bound, hold, lockWith(mu, r), r)
		}
		time.Sleep(upTo(r, 100*time.Millisecond) + time.Microsecond)
	}
}

func lockOnce(ctx context.Context, c *simClient, name string) (string, error) {
	lk, err := locker.NewMutex(c.sess, name).Lock(ctx)
	if err != nil {
		return "lock", err
	}
	return "unlock", lk.Unlock(ctx)
}

// unlocker is a Lock or a ReadLock.
type unlocker interface {
	holding
	Unlock(ctx context.Context) error
}

// lockWith returns Lock, or one time of four TryLock.
func lockWith(mu *locker.Mutex, r *rand.Rand) func(context.Context) (unlocker, error) {
	if r.IntN(4) == 0 {
		return func(ctx context.Context) (unlocker, error) { return mu.TryLock(ctx) }
	}
	return func(ctx context.Context) (unlocker, error) { return mu.Lock(ctx) }
}

// readWith is lockWith for readers.
func readWith(rw *locker.RWMutex, r *rand.Rand) func(context.Context) (unlocker, error) {
	if r.IntN(4) == 0 {
		return func(ctx context.Context) (unlocker, error) { return rw.TryRLock(ctx) }
	}
	return func(ctx context.Context) (unlocker, error) { return rw.RLock(ctx) }
}

// useLock calls acquire, holds the lock, and calls Unlock.
func (s *simulation) useLock(c *simClient, name, who string, bound, hold time.Duration,
	acquire func(context.Context) (unlocker, error), r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	lk, err := acquire(ctx)
	s.checkDuration(who+" acquiring", start, bound+simGiveUp)
	if err != nil {
		return
	}
	h := s.oracle.grant(s, c, name, who, lk)
	hurried := s.hurried()
	for range 1 + r.IntN(2) { // a second Unlock is allowed
		select {
		case <-lk.Done():
		case <-hurried:
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
		s.checkDuration(who+" unlocking", start, wait)
		s.checkRelease(h, err)
	}
}

// checkRelease checks the result of a release. If that is nil, the entry must be gone.
func (s *simulation) checkRelease(h *held, err error) {
	s.log(fmt.Sprintf("%s: released, %v", h.who, err))
	switch {
	case err == nil:
		for _, kv := range s.srv.Keys(h.prefix) {
			if kv.CreateRevision == h.rev {
				s.fail("%s: the release returned nil, and the entry exists", h.who)
			}
		}
	case errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrOutcomeUnknown):
	default:
		s.fail("%s: the release returned %v", h.who, err)
	}
}

// useMinHold holds the lock once. If its release is confirmed, the name stays taken.
func (s *simulation) useMinHold(c *simClient, mu *locker.Mutex, who string, bound, hold, minHold time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	lk, err := mu.With(locker.Options{MinHold: minHold}).Lock(ctx)
	if err != nil {
		return
	}
	h := s.oracle.grant(s, c, mu.Name(), who, lk)
	slept := c.offset.Load()
	select {
	case <-lk.Done():
	case <-time.After(hold):
	}
	uctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	start := s.now()
	err = lk.Unlock(uctx)
	s.checkDuration(who+" unlocking with MinHold", start, 2*time.Second)
	s.log(fmt.Sprintf("%s: released with MinHold %v, %v", who, minHold, err))
	switch {
	case err == nil && slept == c.offset.Load(): // the session's clock has not jumped
		s.oracle.taken(h, time.Duration(float64(minHold)/max(c.rate, 1)))
	case err == nil || errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrOutcomeUnknown):
	default:
		s.fail("%s: the release returned %v", who, err)
	}
}

// useDo holds the lock in Do.
func (s *simulation) useDo(c *simClient, mu *locker.Mutex, who string, bound, hold time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	held := time.Duration(0)
	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		s.checkDuration(who+" acquiring in Do", start, bound+simGiveUp)
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
	s.checkDuration(who+" in Do", start+held, max(bound, simCloseTimeout)+simGiveUp+simCloseTimeout)
	var failed *locker.AcquireError
	if err != nil && !errors.As(err, &failed) && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
		s.fail("%s: Do returned %v", who, err)
	}
}

// checkDuration checks that a call that began at start returned within the limit.
func (s *simulation) checkDuration(what string, start, limit time.Duration) {
	if took := s.now() - start; took > limit+simSlack {
		s.fail("%s took %v, limit %v", what, took, limit)
	}
}
