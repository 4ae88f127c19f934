package queue

import (
	"maps"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
)

const (
	// maxSights bounds how many dead claims a session remembers.
	maxSights = 1 << 15
	// sightLasts is how long it remembers a dead claim at least: longer than any delay.
	sightLasts = 20 * time.Minute
)

// sights is what a session has seen of dead claims. All its attempts share it, so the delay of a claim counts from when
// the session first saw it dead: calls with a deadline below the delay get in at last, and the next in a line goes on
// from where the one before has left off.
type sights struct {
	mu sync.Mutex // protects of
	of map[string]sight
}

// sight is what is known of one dead claim. Each time is when a reply was received.
type sight struct {
	rev       int64     // of the claim
	acquitted bool      // its entry never held
	dead      time.Time // the first reply showed it without its entry
	gone      time.Time // the first reply showed that its session key had gone, too; zero: it stands
	examined  bool      // says was read
	says      layout.Claim
}

// noteDead records dead claims that a reply has shown.
func (s *sights) noteDead(claims []ahead.Claim, now time.Time) {
	if len(claims) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string]sight)
	}
	if len(s.of)+len(claims) > maxSights {
		maps.DeleteFunc(s.of, func(_ string, known sight) bool { return now.Sub(known.dead) > sightLasts })
	}
	for _, c := range claims {
		known := s.of[c.Key]
		switch {
		case known.rev > c.Rev: // a late reply tells of an earlier claim at the key
			continue
		case known.rev < c.Rev:
			known = sight{rev: c.Rev, dead: now}
		}
		known.acquitted = known.acquitted || c.Acquitted
		s.of[c.Key] = known
	}
}

// noteExamined records what a reply has shown of a dead claim: its value, and whether the session key of its holder has
// gone.
func (s *sights) noteExamined(claim *mvccpb.KeyValue, sessionGone bool, now time.Time) {
	says := layout.DecodeClaim(claim.Value)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.of[string(claim.Key)]
	if known.rev != claim.CreateRevision {
		return
	}
	known.examined, known.says = true, says
	if sessionGone && known.gone.IsZero() {
		known.gone = now
	}
	s.of[string(claim.Key)] = known
}

// forget forgets claims that are cleared.
func (s *sights) forget(claims []ahead.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		if s.of[c.Key].rev == c.Rev {
			delete(s.of, c.Key)
		}
	}
}

// isExamined reports whether it is known what a dead claim says, or that it costs no delay.
func (s *sights) isExamined(c ahead.Claim) bool {
	known := s.get(c)
	return known.acquitted || known.examined
}

// isOpen reports whether another look may end the delay of a dead claim earlier.
func (s *sights) isOpen(c ahead.Claim) bool {
	known := s.get(c)
	return !known.acquitted && known.gone.IsZero()
}

// get returns what is known of a claim; the zero sight if no reply has shown it dead.
func (s *sights) get(c ahead.Claim) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.of[c.Key]; known.rev == c.Rev {
		return known
	}
	return sight{}
}

// delayEnds returns when the delay of a dead claim is over for a session with that lock delay, and false if that is yet
// to be read. By then its holder has been told: by the watch of its session key within the lock delay, if that key has
// gone; by a poll in any case.
//
//	rev 10  A puts, and holds
//	rev 15  A's lease is revoked: entry and session key are gone, the claim is dead
//	        first seen at 0 s: the delay ends at 2 s, the lock delay
//	rev 15  or: A's entry is deleted by hand. Its session key stands
//	        first seen at 0 s: the delay ends at 8 s, by when a poll has told A
func (s *sights) delayEnds(c ahead.Claim, lockDelay time.Duration) (end time.Time, known bool) {
	seen := s.get(c)
	if seen.acquitted || !seen.examined {
		return time.Time{}, seen.acquitted
	}
	// The holder's own delays count as well: the claim is deleted for all who come later.
	end = seen.dead.Add(max(lease.ToldWithin(lockDelay), seen.says.ToldWithin))
	if !seen.gone.IsZero() {
		if at := seen.gone.Add(max(lockDelay, seen.says.LockDelay)); at.Before(end) {
			end = at
		}
	}
	return end, true
}
