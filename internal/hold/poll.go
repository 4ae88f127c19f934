package hold

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/polls"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// maxBatch keeps a Txn below etcd's default limit of 128 operations.
const maxBatch = 100

// never was a hold asked about, or not since the bell has rung.
const never = time.Duration(math.MinInt64 / 2)

// pollsInFlight bounds the batches of holds that are checked at the same time.
const pollsInFlight = 8

// poller knows the holds of a session. It ends them with their lease, and it ends
// those whose entries another client has deleted: while the session holds anything,
// one goroutine asks etcd now and then whether the entries still stand. The
// same question tells it that an administrator has put a Notice into one.
//
// While the lease is watched, a hold is asked about once when it is new, when the
// bell has rung, and every few seconds, as a rule by the read that proves a renewal.
// While it is not, twice in a lock delay: a watch of the session key may hang with its
// member, and then nothing else would tell a holder that its lease was revoked before
// the waiter behind it holds.
//
// That waiter's lock delay may have begun right after the read by which the holder
// holds, however late its reply came. So a hold is as old as that read.
type poller struct {
	host     lease.Host
	interval time.Duration // between two polls of a lease that is not watched
	look     time.Duration // between two looks whether to ask
	late     chan struct{} // has a value if a new hold, whose lease is not watched, must be asked about at once

	mu      sync.Mutex              // protects what follows
	holds   map[*Hold]time.Duration // when the latest poll that was answered was sent, by the session's clock; or never
	bound   *lease.Lease            // its end ends the holds on it
	running bool
	sent    time.Duration // when the latest poll was, by the session's clock
	failing bool          // it was not answered
	asking  *lease.Lease  // etcd is being asked whether it exists

	since heldWriter
}

type pollerKey struct{}

// pollerOf returns the poller of a session.
func pollerOf(host lease.Host) *poller {
	return host.Extension(pollerKey{}, func() any {
		interval := polls.Interval(host.LockDelay())
		p := &poller{host: host, interval: interval, look: interval / 2}
		p.late, p.holds = make(chan struct{}, 1), make(map[*Hold]time.Duration)
		host.BeforeRevoke(p.beforeRevoke) // after package queue, so before its hook runs
		return p
	}).(*poller)
}

// beforeRevoke ends the holds on a lease that is about to be revoked, before package queue deletes their entries: no
// work may believe that it still holds.
func (p *poller) beforeRevoke(ctx context.Context, l *lease.Lease) {
	p.endHolds(l)
	moveTaken(ctx, p.host, l)
}

// add has holds on one lease end with it, and with their entries.
func (p *poller) add(holds []*Hold) {
	l := holds[0].grant.Lease
	p.mu.Lock()
	for _, h := range holds {
		p.holds[h] = never
	}
	first := p.bound != l
	p.bound = l
	if !p.running {
		p.running = p.host.Go(p.run) // joined by Close; ends when nothing is held
	}
	p.mu.Unlock()
	if !l.Watched() && time.Since(holds[0].grant.Stood) >= p.look {
		select {
		case p.late <- struct{}{}:
		default:
		}
	}
	if first {
		l.Errands.Run(func() *lease.Errand { return p.errand(l) })
		context.AfterFunc(l.Context(), func() { p.endHolds(l) }) // ends at once: it only finds the holds
	}
	// If the lease ended before they were added, endHolds may have missed them.
	if l.Context().Err() != nil {
		_ = holds[0].Check()
	}
}

func (p *poller) remove(holds []*Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range holds {
		delete(p.holds, h)
	}
}

// endHolds ends the holds on a lost lease.
func (p *poller) endHolds(lease *lease.Lease) {
	for _, h := range p.on(lease) {
		_ = h.holds[0].Check() // which finds the loss, and ends the hold
		h.removeKept()
	}
}

func (p *poller) on(lease *lease.Lease) []*Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*Hold
	for h := range p.holds {
		if h.grant.Lease == lease {
			all = append(all, h)
		}
	}
	return all
}

func (p *poller) run(ctx context.Context) {
	tick := time.NewTicker(p.look)
	defer tick.Stop()
	for {
		rang := false
		select {
		case <-tick.C:
		case <-p.late:
		case <-p.bell():
			rang = true
		case <-ctx.Done():
			return
		}
		held, more := p.held(rang)
		if !more {
			return
		}
		p.checkAll(ctx, p.due(held))
		for _, holds := range held {
			p.since.write(p.host, holds)
		}
	}
}

// bell rings for the lease of the latest hold. What is held on another one is lost.
func (p *poller) bell() <-chan struct{} {
	p.mu.Lock()
	bound := p.bound
	p.mu.Unlock()
	return bound.Bell()
}

// held returns the holds that may be asked about, by lease: those that are old, and
// once the bell has rung, all. If nothing is held at all, more is false and the
// goroutine ends.
func (p *poller) held(rang bool) (held map[*lease.Lease][]*Hold, more bool) {
	old := time.Now().Add(-p.look)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.holds) == 0 {
		p.running = false
		return nil, false
	}
	held = make(map[*lease.Lease][]*Hold)
	for h := range p.holds {
		if rang {
			p.holds[h] = never
		}
		if rang || !old.Before(h.grant.Stood) {
			held[h.grant.Lease] = append(held[h.grant.Lease], h)
		}
	}
	return held, true
}

// due returns the holds to ask about now. If one was last asked about long ago, all
// of its lease are, so that they are asked about together from then on.
func (p *poller) due(held map[*lease.Lease][]*Hold) map[*lease.Lease][]*Hold {
	now := p.host.Clock()() + p.look/2 // so that what is due is asked about at the nearest look, not the next
	p.mu.Lock()
	pauses := p.failing && p.sent > now-p.interval
	p.mu.Unlock()
	if pauses {
		return nil
	}
	due := make(map[*lease.Lease][]*Hold)
	for lease, holds := range held {
		late := now - polls.Slow
		switch {
		case !lease.Watched():
			late = now - p.interval
		case lease.Errands.UnderWay(): // it asks about what was polled before
			late = never
		}
		if holds = p.dueOf(holds, late); len(holds) > 0 {
			due[lease] = holds
		}
	}
	return due
}

// dueOf returns those of some holds on one lease that are due: all, or if none was asked about before late, those that
// never were.
func (p *poller) dueOf(holds []*Hold, late time.Duration) (due []*Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := false
	for _, h := range holds {
		switch asked, held := p.holds[h]; {
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

// asked records when a poll was sent that was answered; or never, for holds that are to be asked about again.
func (p *poller) asked(holds []*Hold, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range holds {
		if _, held := p.holds[h]; held {
			p.holds[h] = at
		}
	}
}

// checkAll checks the holds in batches, several at a time. One after the other, the
// last of many holds would be told seconds after the first if etcd is far away.
func (p *poller) checkAll(ctx context.Context, due map[*lease.Lease][]*Hold) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, pollsInFlight)
	for lease, holds := range due {
		for batch := range slices.Chunk(holds, maxBatch) {
			slots <- struct{}{}
			all.Go(func() { // joined above
				defer func() { <-slots }()
				p.check(ctx, lease, batch)
			})
		}
	}
}

// check ends the holds of a batch whose entries are gone. Without a reply it
// decides nothing: renewals judge the connection.
//
// The next check waits for this one, so holders ask less often when etcd is slow.
func (p *poller) check(ctx context.Context, lease *lease.Lease, holds []*Hold) {
	within, cancel := context.WithTimeout(ctx, p.host.RetryPolicy().Attempt)
	defer cancel()
	sent := p.host.Clock()()
	p.mu.Lock()
	p.sent = sent
	p.mu.Unlock()
	resp, err := p.read(within, lease, holds)
	if ctx.Err() != nil {
		return
	}
	if p.report(err); err != nil {
		return
	}
	p.asked(holds, sent)
	if resp.Succeeded {
		return
	}
	// The holders are told first. Why their entries are gone is asked afterwards.
	cause := p.causeOf(resp, 0)
	var changed []*Hold
	for i, h := range holds {
		switch kv := resp.First(i + 1); {
		case !h.grant.Is(kv):
			h.endAndRelease(h.lossOfEntry(cause))
			h.removeKept()
		case h.unknown(kv.ModRevision):
			changed = append(changed, h)
		}
	}
	p.readNotices(ctx, changed)
	if cause != holdfast.CauseEntryDeleted {
		p.checkLease(lease)
	}
}

// read compares the entries of a batch in one read-only Txn, those of locks with what is known of their values. Its
// else-branch reads them, and the session key. That also makes the Txn linearizable: without a range a member would
// answer from its own state, however old.
func (p *poller) read(ctx context.Context, lease *lease.Lease, holds []*Hold) (txns.Reply, error) {
	cmps := make([]clientv3.Cmp, len(holds))
	gets := make([]clientv3.Op, 1, len(holds)+1)
	gets[0] = getMeta(p.host.SessionKey(lease.ID()))
	for i, h := range holds {
		cmps[i] = h.unchanged()
		gets = append(gets, getMeta(h.Key()))
	}
	return txns.Txn{If: cmps, Else: gets}.Once(ctx, p.host.Sender(), sending.Read)
}

// causeOf returns why an entry is gone, from the reply that shows it: another cluster has sent it; or the session key,
// response i, is gone, too, so the lease was revoked; or only the entry was deleted.
func (p *poller) causeOf(resp txns.Reply, i int) holdfast.Cause {
	switch {
	case resp.Header.ClusterId != p.host.Lease().Cluster():
		return holdfast.CauseClusterChanged
	case resp.First(i) == nil:
		return holdfast.CauseRevoked
	default:
		return holdfast.CauseEntryDeleted
	}
}

// report counts polls that were not answered, and logs the first of a row.
func (p *poller) report(err error) {
	p.mu.Lock()
	before := p.failing
	p.failing = err != nil
	p.mu.Unlock()
	if err == nil {
		return
	}
	p.host.Telemetry().PollFailed()
	if !before {
		p.host.Logger().Warn("holdfast: could not check whether the entries of held locks and terms exist; "+
			"a deleted one is noticed once etcd answers",
			"lease", names.Lease(p.host.Lease().ID()), "error", err)
	}
}

// checkLease asks etcd whether a lease exists, on a goroutine of the session, and
// ends the lease if not. One question at a time is enough, however many entries are
// gone.
func (p *poller) checkLease(lease *lease.Lease) {
	if lease.Context().Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking == lease {
		return
	}
	p.asking = lease
	if !p.host.Go(func(context.Context) { p.askLease(lease) }) { // ends with the lease
		p.asking = nil
	}
}

func (p *poller) askLease(lease *lease.Lease) {
	send := func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return p.host.Client().TimeToLive(ctx, lease.ID())
	}
	resp, err := sending.Ask(lease.Context(), p.host.Sender(), sending.Read, send)
	if err == nil && resp.TTL < 0 { // 0 is less than a second, on a lease that exists
		p.host.LeaseGone(lease.Context(), lease, nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking == lease {
		p.asking = nil
	}
}
