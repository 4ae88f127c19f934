package hold

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// errand has the read that proves the next renewal ask about the holds on a lease that were polled before, if one Txn
// takes them. So a session at rest does not poll. What has changed is polled at the next look.
func (p *poller) errand(l *lease.Lease) *lease.Errand {
	var e lease.Errand
	holds := p.polled(l)
	if len(holds) == 0 || len(holds) > maxBatch {
		return nil
	}
	for _, h := range holds {
		e.If = append(e.If, h.unchanged())
	}
	e.Told = func(sent time.Duration, yes bool) {
		if !yes {
			sent = never
		}
		p.askedAgain(holds, sent)
	}
	return &e
}

// polled returns the holds on a lease that were polled, and for which the bell has not rung since.
func (p *poller) polled(l *lease.Lease) (holds []*Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for h, asked := range p.holds {
		if asked != never && h.grant.Lease == l {
			holds = append(holds, h)
		}
	}
	return holds
}

// askedAgain is asked, for holds that nothing else was asked about or has rung for since.
func (p *poller) askedAgain(holds []*Hold, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range holds {
		if asked, held := p.holds[h]; held && asked != never && (at == never || at > asked) {
			p.holds[h] = at
		}
	}
}
