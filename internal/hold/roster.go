package hold

import (
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// never was a hold asked about, or not since the bell has rung.
const never = time.Duration(math.MinInt64 / 2)

// roster is the holds of a session, and when etcd was asked about each.
//
// While the lease is watched, a hold is asked about once when it is new, when the
// bell has rung, and every few seconds, as a rule by the read that proves a renewal.
// While it is not, twice in a lock delay: a watch of the session key may hang with its
// member, and then nothing else would tell a holder that its lease was revoked before
// the waiter behind it holds.
//
// That waiter's lock delay may have begun right after the read by which the holder
// holds, however late its reply came. So a hold is as old as that read.
type roster struct {
	clock    func() time.Duration
	interval time.Duration // between two polls of a lease that is not watched
	look     time.Duration // between two looks whether to ask

	mu      sync.Mutex              // protects what follows
	holds   map[*Hold]time.Duration // when the latest poll that was answered was sent, by the session's clock; or never
	bound   *lease.Lease            // its end ends the holds on it
	running bool                    // a goroutine looks
	sent    time.Duration           // when the latest poll was, by the session's clock
	failing bool                    // it was not answered
}

func newRoster(host lease.Host) roster {
	interval := lease.PollInterval(host.LockDelay())
	return roster{
		clock: host.Clock(), interval: interval, look: interval / 2, holds: make(map[*Hold]time.Duration),
	}
}

// add adds holds on one lease. It reports whether they are the first ones on it, and whether no goroutine looks: then
// the caller starts one.
func (r *roster) add(holds []*Hold) (first, idle bool) {
	l := holds[0].grant.Lease
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range holds {
		r.holds[h] = never
	}
	first, idle = r.bound != l, !r.running
	r.bound, r.running = l, true
	return first, idle
}

func (r *roster) remove(holds []*Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range holds {
		delete(r.holds, h)
	}
}

func (r *roster) on(l *lease.Lease) []*Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*Hold
	for h := range r.holds {
		if h.grant.Lease == l {
			all = append(all, h)
		}
	}
	return all
}

// bell rings for the lease of the latest hold. What is held on another one is lost.
func (r *roster) bell() <-chan struct{} {
	r.mu.Lock()
	bound := r.bound
	r.mu.Unlock()
	return bound.Bell()
}

// ready returns the holds that may be asked about, by lease: those that are old, and
// once the bell has rung, all. If nothing is held at all, more is false and the
// goroutine ends.
func (r *roster) ready(rang bool) (held map[*lease.Lease][]*Hold, more bool) {
	old := time.Now().Add(-r.look)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.holds) == 0 {
		r.running = false
		return nil, false
	}
	held = make(map[*lease.Lease][]*Hold)
	for h := range r.holds {
		if rang {
			r.holds[h] = never
		}
		if rang || !old.Before(h.grant.Stood) {
			held[h.grant.Lease] = append(held[h.grant.Lease], h)
		}
	}
	return held, true
}

// due returns the holds to ask about now. If one was last asked about long ago, all
// of its lease are, so that they are asked about together from then on.
func (r *roster) due(held map[*lease.Lease][]*Hold) map[*lease.Lease][]*Hold {
	now := r.clock() + r.look/2 // so that what is due is asked about at the nearest look, not the next
	r.mu.Lock()
	pauses := r.failing && r.sent > now-r.interval
	r.mu.Unlock()
	if pauses {
		return nil
	}
	due := make(map[*lease.Lease][]*Hold)
	for l, holds := range held {
		late := now - lease.SlowPoll
		switch {
		case !l.Watched():
			late = now - r.interval
		case l.Errands.UnderWay(): // it asks about what was polled before
			late = never
		}
		due[l] = r.dueOf(holds, late)
	}
	return due
}

// dueOf returns those of some holds on one lease that are due: all, or if none was asked about before late, those that
// never were.
func (r *roster) dueOf(holds []*Hold, late time.Duration) (due []*Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := false
	for _, h := range holds {
		switch asked, held := r.holds[h]; {
		case !held: // not any more
		case asked == never:
			due = append(due, h)
		case asked <= late:
			all = true
		}
	}
	if all {
		return holds
	}
	return due
}

// asks records that a poll is sent, and returns when.
func (r *roster) asks() time.Duration {
	sent := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = sent
	return sent
}

// answered records whether a poll was answered, and reports whether the one before was.
func (r *roster) answered(yes bool) (before bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.failing = !r.failing, !yes
	return before
}

// asked records when a poll was sent that was answered; or never, for holds that are to be asked about again.
func (r *roster) asked(holds []*Hold, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range holds {
		if _, held := r.holds[h]; held {
			r.holds[h] = at
		}
	}
}

// polled returns the holds on a lease that were polled, and for which the bell has not rung since.
func (r *roster) polled(l *lease.Lease) (holds []*Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h, asked := range r.holds {
		if asked != never && h.grant.Lease == l {
			holds = append(holds, h)
		}
	}
	return holds
}

// askedAgain is asked, for holds that nothing else was asked about or has rung for since.
func (r *roster) askedAgain(holds []*Hold, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range holds {
		if asked, held := r.holds[h]; held && asked != never && (at == never || at > asked) {
			r.holds[h] = at
		}
	}
}
