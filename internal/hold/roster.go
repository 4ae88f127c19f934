package hold

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// poller ends the holds of a session with their lease, and those whose entries another client has deleted or put a
// notice into. While the session holds anything, one goroutine asks etcd now and then whether the entries still stand
// as they were put. Its roster says when it asks about which.
type poller struct {
	host   *lease.Host
	roster roster
	late   chan struct{} // has a value if a new hold, whose lease is not watched, must be polled at once

	mu     sync.Mutex   // protects what follows
	asking *lease.Lease // etcd is being asked whether it exists

	since heldWriter
}

type pollerKey struct{}

// pollerOf returns the poller of a session.
func pollerOf(host *lease.Host) *poller {
	return host.Extension(pollerKey{}, func() any {
		p := &poller{host: host, roster: newRoster(host), late: make(chan struct{}, 1)}
		host.BeforeRevoke(p.beforeRevoke)
		return p
	}).(*poller)
}

// beforeRevoke ends the holds on a lease before its revocation: no work may believe that it still holds. Then it
// moves the entries kept by MinHold.
func (p *poller) beforeRevoke(ctx context.Context, l *lease.Lease) {
	p.endHolds(l)
	moveTaken(ctx, p.host, l)
}

// add has holds on one lease end with it, and with their entries.
func (p *poller) add(holds []*Hold) {
	l := holds[0].grant.Lease
	first, idle := p.roster.add(holds)
	if idle {
		p.host.Go(p.run) // joined by Close; ends when nothing is held
	}
	// Right after the request by which it holds, the next one's delay may have begun. With one of 2 s, and no watches:
	//
	//	0 s     the request by which A holds is sent; right after it A's lease is revoked, and B's delay begins
	//	0.7 s   the reply arrives, late: A begins to hold. It is 0.7 s old, so its poll is due at once
	//	1 s     at the latest the poll is sent
	//	2 s     B holds; half a delay was left for the reply to A's poll
	if !l.Watched() && p.roster.clock()-holds[0].grant.Stood >= p.roster.tick {
		select {
		case p.late <- struct{}{}:
		default:
		}
	}
	if first {
		l.Errands.Run(func() *lease.Errand { return p.errand(l) })
		context.AfterFunc(l.Context(), func() { p.endHolds(l) }) // ends at once: it calls no auditor
	}
	// If the lease ended before they were added, endHolds may have missed them.
	if l.Context().Err() != nil {
		_ = holds[0].Check()
	}
}

// endHolds ends the holds on a lost lease.
func (p *poller) endHolds(lease *lease.Lease) {
	for _, h := range p.roster.on(lease, false) {
		_ = h.holds[0].Check() // finds the loss, and ends the hold
		h.removeKept()         // nothing is left to Release: the entry ends with the lease
	}
}

func (p *poller) run(ctx context.Context) {
	tick := time.NewTicker(p.roster.tick)
	defer tick.Stop()
	for {
		rang := false
		select {
		case <-tick.C:
		case <-p.late:
		case <-p.roster.bell():
			rang = true
		case <-ctx.Done():
			return
		}
		held, more := p.roster.ready(rang)
		if !more {
			return
		}
		p.pollAll(ctx, p.roster.due(held))
		for _, holds := range held {
			p.since.write(p.host, holds)
		}
	}
}

// never stands for the time of a poll that was not sent, or not since the bell rang.
const never = time.Duration(math.MinInt64 / 2)

// roster is the holds of a session, and when each was polled.
//
// While the lease is watched, a hold is polled when it is new, when the bell has rung, and every few seconds, as a rule
// by the read with a renewal. Without the watches it is polled twice in a lock delay.
type roster struct {
	clock    func() time.Duration
	interval time.Duration // between two polls of a lease that is not watched
	tick     time.Duration // between two checks of which holds are due

	mu      sync.Mutex              // protects what follows
	holds   map[*Hold]time.Duration // when the latest poll with a reply was sent, by the session's clock; or never
	bound   *lease.Lease            // its end ends the holds on it
	running bool                    // the poller's goroutine runs
	failed  time.Duration           // when the latest poll was sent, if it got no reply; otherwise never
}

func newRoster(host *lease.Host) roster {
	interval := lease.PollInterval(host.LockDelay)
	return roster{
		clock: host.Clock, interval: interval, tick: interval / 2, holds: make(map[*Hold]time.Duration), failed: never,
	}
}

// add adds holds on one lease. first: no hold was on this lease before. idle: the poller's goroutine does not run, and
// the caller starts it.
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

// on returns the holds on a lease. With polled it leaves out those not polled since they began, or since the bell.
func (r *roster) on(l *lease.Lease, polled bool) (holds []*Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h, at := range r.holds {
		if h.grant.Lease == l && (!polled || at != never) {
			holds = append(holds, h)
		}
	}
	return holds
}

// bell rings for the lease of the latest hold. What is held on another lease is lost.
func (r *roster) bell() <-chan struct{} {
	r.mu.Lock()
	bound := r.bound
	r.mu.Unlock()
	return bound.Bell()
}

// ready returns the holds that may be polled, by lease: the old holds, and once the bell has rung, all. If nothing
// is held at all, more is false and the goroutine ends.
func (r *roster) ready(rang bool) (held map[*lease.Lease][]*Hold, more bool) {
	old := r.clock() - r.tick // a hold that lasts less than a tick costs no poll
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
		if rang || h.grant.Stood <= old {
			held[h.grant.Lease] = append(held[h.grant.Lease], h)
		}
	}
	return held, true
}

// due returns the holds to poll now.
func (r *roster) due(held map[*lease.Lease][]*Hold) map[*lease.Lease][]*Hold {
	now := r.clock() + r.tick/2 // what is due within half a tick is polled now
	r.mu.Lock()
	pauses := r.failed > now-r.interval // etcd is slow: no more requests than before
	r.mu.Unlock()
	if pauses {
		return nil
	}
	due := make(map[*lease.Lease][]*Hold)
	for l, holds := range held {
		late := now - lease.SlowPoll
		switch {
		case !l.Watched():
			// The one watch of the session key may hang with its member. Then a poll alone tells in time.
			late = now - r.interval
		case l.Errands.UnderWay(): // the errand asks about the holds polled before
			late = never
		}
		due[l] = r.dueOf(holds, late)
	}
	return due
}

// dueOf returns the due holds on one lease: all of them, if the last poll of any was sent before late; otherwise those
// not polled yet, or not since the bell.
func (r *roster) dueOf(holds []*Hold, late time.Duration) (due []*Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := false
	for _, h := range holds {
		switch polled, held := r.holds[h]; {
		case !held: // it has ended since ready
		case polled == never:
			due = append(due, h)
		case polled <= late:
			all = true
		}
	}
	if all {
		return holds // one request polls them from now on
	}
	return due
}

// noteReply records whether a poll got a reply, and reports whether the poll before it did.
func (r *roster) noteReply(sent time.Duration, yes bool) (before bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.failed = r.failed == never, never
	if !yes {
		r.failed = sent
	}
	return before
}

// notePolled records when a poll with a reply was sent; or never: the holds must be polled again.
func (r *roster) notePolled(holds []*Hold, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range holds {
		if _, held := r.holds[h]; held {
			r.holds[h] = at
		}
	}
}

// noteErrand is notePolled for an errand. It leaves out a hold if the bell rang or another poll was sent since.
func (r *roster) noteErrand(holds []*Hold, at time.Duration) {
	// Since the bell the latest poll is never, and an errand sent before does not hide that:
	//
	//	rev 20  an errand finds all as it was put. Its reply is slow
	//	rev 21  a notice is put, and the bell rings
	//	        the errand's reply comes, and counts for nothing: the poll for the bell finds the notice
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range holds {
		if polled, held := r.holds[h]; held && polled != never && (at == never || at > polled) {
			r.holds[h] = at
		}
	}
}
