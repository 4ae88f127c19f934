package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
	"github.com/holdfast-go/holdfast/view"
)

// useMutexes is one goroutine of a process: it acquires, holds and releases locks with
// short and long deadlines until the schedule ends.
func useMutexes(s *simulation, c *process, i int) {
	r := s.source(1000 + 100*uint64(c.id) + uint64(i))
	time.Sleep(family.UpTo(r, 100*time.Millisecond)) // so that goroutines do not start at the same instant
	for call := 0; !s.stop.Load(); call++ {
		name := s.names[r.IntN(len(s.names))]
		who := fmt.Sprintf("session %d goroutine %d call %d, %s", c.id, i, call, name)
		slept := c.offset.Load()
		mu := locker.NewMutex(c.session(), name).With(locker.Options{
			Owner: who,
			OnOverrun: func(lost *holdfast.LostError, since time.Time) {
				if slept == c.offset.Load() { // otherwise the loss was noticed when it had no time left
					s.fail("%s heeds its context, and outlives its lock by %v: %v", who, time.Since(since), lost)
				}
			},
		})
		bound, hold := s.drawBound(r), drawHold(r)
		switch {
		case s.minHold && r.IntN(2) == 0:
			s.useMinHold(c, mu, who, bound, hold, family.UpTo(r, 5*time.Second)+time.Nanosecond)
			continue
		case r.IntN(3) == 0:
			s.useDo(c, mu, who, bound, hold)
		default:
			s.useLock(c, who, []oracle.Part{oracle.LockPart(name, false)}, bound, hold, family.Mutex(mu, r.IntN(4) == 0), r)
		}
		time.Sleep(family.UpTo(r, 100*time.Millisecond) + time.Microsecond)
	}
}

// drawBound draws how long a caller waits.
func (s *simulation) drawBound(r *rand.Rand) time.Duration {
	bound := []time.Duration{20 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second}[r.IntN(4)]
	if s.profile.hasty && r.IntN(4) > 0 {
		bound = 2*s.profile.latency + time.Millisecond
	}
	return family.UpTo(r, bound) + time.Nanosecond
}

// drawHold draws how long a holder holds.
func drawHold(r *rand.Rand) time.Duration {
	holds := []time.Duration{2 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second, 8 * time.Second}
	return family.UpTo(r, holds[r.IntN(4)]) + time.Nanosecond
}

// useLock calls acquire, holds the lock, perhaps downgrades it, and calls Unlock.
func (s *simulation) useLock(c *process, who string, parts []oracle.Part, bound, hold time.Duration,
	acquire family.Acquire, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if r.IntN(2) == 0 { // it gives up when hurried
		defer context.AfterFunc(c.hurried(waiters), cancel)()
	}
	s.wants(who, parts)
	start := s.now()
	lk, err := acquire(ctx)
	s.checkDuration(who+" acquiring", start, bound+giveUp)
	if err != nil {
		return
	}
	h := s.granted(c, who, lk, parts...)
	if lk, ok := lk.(*locker.DowngradableLock); ok && r.IntN(2) == 0 {
		holdFor(c, lk, hold)
		var now family.Lock
		if h, now = s.downgrade(h, lk, r); now != lk {
			s.unlock(h, lk, r) // does nothing
		}
		s.unlockLater(c, h, now, hold, r)
		return
	}
	if detaches, ok := lk.(family.Detachable); ok && s.moves && len(parts) == 1 && r.IntN(2) == 0 {
		holdFor(c, lk, hold)
		s.detach(c, h, lk, detaches, r)
		return
	}
	s.unlockLater(c, h, lk, hold, r)
}

func (s *simulation) unlockLater(c *process, h *hold, lk family.Lock, hold time.Duration, r *rand.Rand) {
	for range 1 + r.IntN(2) { // a second Unlock is allowed
		holdFor(c, lk, hold)
		s.released(h, s.unlock(h, lk, r))
	}
}

func holdFor(c *process, lk family.Held, d time.Duration) {
	select {
	case <-lk.Done():
	case <-c.hurried(holders).Done():
	case <-time.After(d):
	}
}

func (s *simulation) unlock(h *hold, lk family.Lock, r *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), family.UpTo(r, 2*time.Second)+time.Nanosecond)
	defer cancel()
	wait := 2 * time.Second
	if r.IntN(3) == 0 {
		cancel()
		wait = closeTimeout
	}
	start := s.now()
	err := lk.Unlock(ctx)
	s.checkDuration(h.Who+" unlocking", start, wait)
	return err
}

// useMinHold holds the lock once. If its release is confirmed, the name stays taken.
func (s *simulation) useMinHold(c *process, mu *locker.Mutex, who string, bound, hold, minHold time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	lk, err := mu.With(locker.Options{MinHold: minHold, Owner: who}).Lock(ctx)
	if err != nil {
		return
	}
	h := s.granted(c, who, lk, oracle.LockPart(mu.Name(), false))
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
		s.taken(h, time.Duration(float64(minHold)/max(c.rate, 1)))
	case err == nil || errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrOutcomeUnknown):
	default:
		s.fail("%s: the release returned %v", who, err)
	}
}

// useDo holds the lock in Do.
func (s *simulation) useDo(c *process, mu *locker.Mutex, who string, bound, hold time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	held := time.Duration(0)
	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		s.checkDuration(who+" acquiring in Do", start, bound+giveUp)
		s.granted(c, who, lk, oracle.LockPart(mu.Name(), false))
		begin := s.now()
		defer func() { held = s.now() - begin }()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(hold):
			return nil
		}
	})
	s.checkDuration(who+" in Do", start+held, max(bound, closeTimeout)+giveUp+closeTimeout)
	var failed *view.AcquireError
	if err != nil && !errors.As(err, &failed) && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
		s.fail("%s: Do returned %v", who, err)
	}
}

// taken records that a release was confirmed, and that the name must stay taken for d after the grant.
func (s *simulation) taken(h *hold, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Unlocked, h.TakenUntil = s.now(), h.Granted+d-slack
}

// checkDuration checks that a call that began at start returned within the limit.
func (s *simulation) checkDuration(what string, start, limit time.Duration) {
	if took := s.now() - start; took > limit+slack {
		s.fail("%s took %v, limit %v", what, took, limit)
	}
}
