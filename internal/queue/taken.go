package queue

import (
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// taken is how an entry outlives its hold: see TakeFor.
type taken struct {
	until time.Duration // by the session's clock: the end; 0 if the name may be free
	since time.Time     // the beginning, for people
	moved bool          // the entry stands on a lease of its own
}

// TakeFor makes the name stay taken for d from now on: until then the session deletes the entry only if its owner does.
// TakeFor(0) undoes that.
func (g *Grant) TakeFor(d time.Duration) {
	until := g.entry.q.host.Clock()() + d
	if d == 0 {
		until = 0
	}
	e := g.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken.until, e.taken.since = until, time.Now()
}

// TakenFor is the rest of what TakeFor was called with.
func (g *Grant) TakenFor() time.Duration { return g.entry.takenFor() }

// TakenSince is when TakeFor was called.
func (g *Grant) TakenSince() time.Time {
	g.entry.mu.Lock()
	defer g.entry.mu.Unlock()
	return g.entry.taken.since
}

// Taken returns grants for the entries of a lost lease that are to stay: see TakeFor. They are for Forget, and for
// reading.
func Taken(host lease.Host, l *lease.Lease) (taken []*Grant) {
	for _, e := range sharedBy(host).keys.of(l) {
		if e.takenFor() > 0 {
			taken = append(taken, &Grant{entry: e})
		}
	}
	return taken
}

// Forget has the session not account for the entry any more: it was moved to another lease, or is gone.
func (g *Grant) Forget() { g.entry.q.shared.keys.unregister(g.entry) }

// takenFor is the rest of MinHold.
func (e *entry) takenFor() time.Duration {
	e.mu.Lock()
	until := e.taken.until
	e.mu.Unlock()
	if until == 0 {
		return 0
	}
	return max(0, until-e.q.host.Clock()())
}

// taken reports whether MinHold keeps the oldest entry of a queue.
func (s *shared) taken(oldest *mvccpb.KeyValue) bool {
	if oldest == nil {
		return false
	}
	v, ok := layout.DecodeValue(oldest.Value)
	return ok && !v.Released.IsZero() || s.keys.taken(string(oldest.Key))
}
