package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// Holders detach what they hold. Another process goes on with it, or the same one, or two race for it, or the ticket
// runs out. In every third schedule these are permits.
func TestSimulationOfDetachedHolds(t *testing.T) {
	least := shows{oracle.Granted: 60, attached: 12, oracle.ByForce: 4}
	simulateAll(t, 6, least, func(seed uint64) *simulation {
		if seed%3 == 0 {
			return &simulation{
				seed: seed, work: usePermits, once: acquireOnce, permits: true, moves: true, unsure: make(map[string]bool),
			}
		}
		return &simulation{seed: seed, work: useFamily, once: anyOnce, family: true, moves: true, administered: true}
	})
}

// mayFail are the ends of a Detach or an Attach that faults explain.
var mayFail = []error{
	context.DeadlineExceeded, holdfast.ErrLost, holdfast.ErrClosed, holdfast.ErrReleased, holdfast.ErrOutcomeUnknown,
}

func (s *simulation) explained(what string, err error) bool {
	for _, known := range mayFail {
		if errors.Is(err, known) {
			return true
		}
	}
	s.fail("%s: %v", what, err)
	return false
}

// detach ends a hold by Detach, and has one or two processes attach it.
func (s *simulation) detach(c *process, h *hold, lk family.Lock, d family.Detachable, r *rand.Rand) {
	within, bound := time.Second+family.UpTo(r, 4*time.Second), family.UpTo(r, 2*time.Second)+time.Nanosecond
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	ticket, err := d.Detach(ctx, within)
	s.log(fmt.Sprintf("%s: detached, %v", h.Who, err))
	s.checkDuration(h.Who+" detaching", start, bound)
	var refused *holdfast.ArgumentError
	if errors.As(err, &refused) { // a tree lock of one segment
		s.unlockLater(c, h, lk, time.Second, r)
		return
	}
	if err != nil {
		s.explained(h.Who+" detaching", err)
		_ = s.unlock(h, lk, r) // it does nothing, unless the hold was kicked before
		return
	}
	if lk.Check() == nil {
		s.fail("%s: held after Detach", h.Who)
	}
	time.Sleep(family.UpTo(r, within+time.Second))
	var bearers sync.WaitGroup
	var mu sync.Mutex // protects held
	held := 0
	for i := range 1 + r.IntN(2) {
		p, seed := s.processes[r.IntN(len(s.processes))], r.Uint64()
		bearers.Go(func() {
			if s.attach(p, fmt.Sprintf("%s, attached by %d", h.Who, i), h, d, ticket, rand.New(rand.NewPCG(s.seed, seed))) {
				mu.Lock()
				defer mu.Unlock()
				if held++; held > 1 {
					s.fail("%s: its ticket was attached twice", h.Who)
				}
			}
		})
	}
	bearers.Wait()
}

// attach attaches a hold, holds it, and releases it. It reports whether it was attached.
func (s *simulation) attach(
	p *process, who string, before *hold, was family.Detachable, ticket locker.Ticket, r *rand.Rand,
) bool {
	bound := family.UpTo(r, 2*time.Second) + time.Nanosecond
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	lk, err := family.Attach(ctx, p.session(), was, ticket, locker.Options{Owner: who})
	s.checkDuration(who+" attaching", start, bound+giveUp)
	if err != nil {
		s.log(fmt.Sprintf("%s: not attached, %v", who, err))
		if ended := (*holdfast.TicketError)(nil); !errors.As(err, &ended) {
			s.explained(who, err)
		}
		return false
	}
	h := s.granted(p, who, lk, before.Parts...)
	if h.Token != before.Token || h.Key != before.Key {
		s.fail("%s: token %v, key %s; it was %v, %s", who, h.Token, h.Key, before.Token, before.Key)
	}
	s.mu.Lock()
	s.attached++
	s.mu.Unlock()
	s.unlockLater(p, h, lk, drawHold(r), r)
	return true
}
