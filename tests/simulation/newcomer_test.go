package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A lease is revoked, or an entry deleted, by hand, and another process comes at once. A fourth of the schedules are of
// semaphores, a fourth of elections, and the others of all kinds of locks. The log has how often two held although the
// oracle does not object, with the reason.
func TestSimulationOfNewcomers(t *testing.T) {
	least := make(shows)
	for kind, n := range map[string]int{"writer": 4, "reader": 2, "set": 1, "tree": 2, "permit": 6, "election": 2} {
		least[oracle.NewcomersOfPrefix+kind] = n
	}
	simulateAll(t, 8, least, func(seed uint64) *simulation {
		s := &simulation{seed: seed, newcomers: true}
		switch seed % 4 {
		case 0:
			s.work, s.once, s.permits, s.unsure = usePermits, acquireOnce, true, make(map[string]bool)
		case 1:
			s.work, s.once, s.kind = useElections, leadOnce, holdfast.KindElection
		default:
			s.work, s.once, s.family = useFamily, anyOnce, true
		}
		return s
	})
}

// meetNewcomers acquires a lock that no other call wants, again and again, and removes its holder by hand. At once
// another process comes: no entry is ahead of it, so only the claim tells it of the holder.
func (s *simulation) meetNewcomers() {
	r := s.source(8)
	for call := 0; !s.stop.Load(); call++ {
		queue := "lock"
		switch {
		case s.permits:
			queue = "sem"
		case s.kind == holdfast.KindElection:
			queue = "election"
		case r.IntN(3) == 0:
			queue = "tree"
		}
		i := r.IntN(len(s.processes))
		c, next := s.processes[i], s.processes[(i+1)%len(s.processes)]
		s.meetNewcomer(oracle.Part{Prefix: oracle.Keys + queue + "/new/@/"}, c, next, call, r)
		time.Sleep(family.UpTo(r, 500*time.Millisecond) + time.Millisecond)
	}
}

func (s *simulation) meetNewcomer(queue oracle.Part, c, next *process, call int, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	who := fmt.Sprintf("session %d, former holder %d", c.id, call)
	acquire, parts := s.comesFor(queue, c, who, r)
	s.wants(who, parts)
	lk, err := acquire(ctx)
	if err != nil {
		return
	}
	h := s.granted(c, who, lk, parts...)
	defer s.unlockLater(c, h, lk, time.Nanosecond, r)
	time.Sleep(family.UpTo(r, 100*time.Millisecond))
	who = fmt.Sprintf("session %d, newcomer %d", next.id, call)
	if acquire, parts = s.comesFor(parts[0], next, who, r); r.IntN(3) > 0 {
		s.log(fmt.Sprintf("lease %x of %s revoked: %v", int64(lk.Lease()), h.Who, s.srv.Revoke(lk.Lease())))
	} else {
		s.log(fmt.Sprintf("deleted %s of %s: %v", lk.Key(), h.Who, s.srv.Delete(lk.Key())))
	}
	s.useLock(next, who, parts, 15*time.Second, family.UpTo(r, 300*time.Millisecond)+time.Nanosecond, acquire, r)
}

// comesFor returns how a newcomer acquires what the holder of a part excludes it from.
func (s *simulation) comesFor(
	former oracle.Part, c *process, who string, r *rand.Rand,
) (family.Acquire, []oracle.Part) {
	kind, name, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(former.Prefix, oracle.Keys), "/@/"), "/")
	sess, o, try := c.session(), locker.Options{Owner: who}, r.IntN(4) == 0
	switch {
	case kind == "sem":
		limit := s.limit(name)
		return family.Permit(locker.NewSemaphore(sess, name, limit).With(o), limit, try),
			[]oracle.Part{oracle.PermitPart(name)}
	case kind == "election":
		el := election.New(sess, name).With(election.Options{Value: who})
		return func(ctx context.Context) (family.Lock, error) {
			term, err := el.Campaign(ctx)
			if err != nil {
				return nil, err
			}
			return leadership{term}, nil
		}, []oracle.Part{oracle.ElectionPart(name)}
	case kind == "tree":
		tree := locker.NewTreeMutex(sess, name).With(o)
		return family.Either(try, tree.TryLock, tree.Lock), family.TreeParts(name)
	}
	rw := locker.NewRWMutex(sess, name).With(o)
	switch n := r.IntN(3); {
	case n == 0:
		names := []string{name, name + "-too"}
		set := locker.NewSet(sess, locker.Write(names[0]), locker.Write(names[1])).With(o)
		return family.OfSet(set, names, try),
			[]oracle.Part{oracle.LockPart(names[0], false), oracle.LockPart(names[1], false)}
	case n == 1 && !former.Shared:
		return family.Either(try, rw.TryRLock, rw.RLock), []oracle.Part{oracle.LockPart(name, true)}
	}
	return family.Either(try, rw.TryLock, rw.Lock), []oracle.Part{oracle.LockPart(name, false)}
}

// leadership is a Term with the method that releases a lock.
type leadership struct{ *election.Term }

func (l leadership) Unlock(ctx context.Context) error { return l.Resign(ctx) }
