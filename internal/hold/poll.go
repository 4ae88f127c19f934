package hold

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// pollsInFlight bounds the batches of holds that are polled at the same time.
const pollsInFlight = 8

// pollAll polls the holds in batches, several at a time.
func (p *poller) pollAll(ctx context.Context, due map[*lease.Lease][]*Hold) {
	// With one batch after the other, the last of many holders would be told seconds after the first if etcd is far away.
	var all sync.WaitGroup
	defer all.Wait() // the next tick waits: holders ask less often when etcd is slow
	slots := make(chan struct{}, pollsInFlight)
	for lease, holds := range due {
		for batch := range slices.Chunk(holds, requests.MaxOps) {
			slots <- struct{}{}
			all.Go(func() { // joined above
				defer func() { <-slots }()
				p.poll(ctx, lease, batch)
			})
		}
	}
}

// poll ends the holds of a batch whose entries are gone.
func (p *poller) poll(ctx context.Context, lease *lease.Lease, holds []*Hold) {
	within, cancel := context.WithTimeout(ctx, requests.Patience)
	defer cancel()
	sent := p.roster.clock() // the next poll is due by this: an entry may go as soon as etcd has read it
	resp, err := p.read(within, lease, holds)
	if ctx.Err() != nil {
		return
	}
	if p.report(sent, err); err != nil {
		return // that decides nothing: renewals judge the connection
	}
	p.roster.notePolled(holds, sent)
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
			h.removeKept() // if a notice had ended the hold: its entry has gone without a Release
		case kv.ModRevision > h.known(): // its value is yet to be read
			changed = append(changed, h)
		}
	}
	p.readNotices(ctx, changed)
	if cause != holdfast.CauseEntryDeleted {
		p.checkLease(lease)
	}
}

// read compares the entries of a batch with what is known of their values, in one read-only Txn. The else-branch reads
// the entries and the session key.
func (p *poller) read(ctx context.Context, lease *lease.Lease, holds []*Hold) (requests.Reply, error) {
	cmps := make([]clientv3.Cmp, len(holds))
	gets := make([]clientv3.Op, 1, len(holds)+1)
	gets[0] = queue.Meta(lease.Key())
	for i, h := range holds {
		cmps[i] = h.unchanged()
		gets = append(gets, queue.Meta(h.Key()))
	}
	// A range makes the Txn linearizable, be it in a branch that is not run. Without one a member would answer from its
	// own state, however old.
	return requests.Txn{If: cmps, Else: gets}.Once(ctx, p.host.Sender, requests.Proof)
}

// causeOf returns why an entry is gone, by the reply without it: another cluster has sent the reply; or the session
// key, response i, is gone, too, so the lease was revoked; or only the entry was deleted.
func (p *poller) causeOf(resp requests.Reply, i int) holdfast.Cause {
	switch {
	case resp.Header.ClusterId != p.host.Lease().Cluster():
		return holdfast.CauseClusterChanged
	case resp.First(i) == nil:
		return holdfast.CauseRevoked
	default:
		return holdfast.CauseEntryDeleted
	}
}

// report counts polls without a reply, and logs the first of a row.
func (p *poller) report(sent time.Duration, err error) {
	first := p.roster.noteReply(sent, err == nil)
	if err == nil {
		return
	}
	p.host.Telemetry.PollFailed()
	if first {
		p.host.Logger.Warn("holdfast: could not check whether the entries of held locks and terms exist; "+
			"a deleted one is noticed once etcd answers",
			"lease", names.Lease(p.host.Lease().ID()), "error", err)
	}
}

// checkLease asks etcd whether a lease exists, on a goroutine of the session, and ends the lease if not.
func (p *poller) checkLease(lease *lease.Lease) {
	if lease.Context().Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking == lease {
		return // one question at a time is enough, however many entries are gone
	}
	p.asking = lease
	p.host.Go(func(context.Context) { // ends with the lease; not asked once the session is closed
		p.askLease(lease.Context(), lease)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.asking == lease {
			p.asking = nil
		}
	})
}

// askLease asks etcd whether a lease exists until it answers, and ends the lease if not.
func (p *poller) askLease(ctx context.Context, lease *lease.Lease) {
	send := func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return p.host.Client.TimeToLive(ctx, lease.ID())
	}
	resp, err := requests.Ask(ctx, p.host.Sender, requests.Read, send)
	if err == nil && resp.TTL < 0 { // 0 is less than a second, on a lease that exists
		p.host.LeaseGone(ctx, lease, nil)
	}
}

// errand returns what the next renewal's read asks about the holds on a lease, so a session at rest sends no polls.
// Holds that were not polled yet are left out; nil: none is left, or more than fit one Txn.
func (p *poller) errand(l *lease.Lease) *lease.Errand {
	var e lease.Errand
	holds := p.roster.on(l, true) // a new hold is polled sooner: a renewal may be seconds away
	if len(holds) == 0 || len(holds) > requests.MaxOps {
		return nil
	}
	for _, h := range holds {
		e.If = append(e.If, h.unchanged())
	}
	e.Told = func(sent time.Duration, yes bool) {
		if !yes { // the next poll finds what has changed
			sent = never
		}
		p.roster.noteErrand(holds, sent)
	}
	return &e
}
