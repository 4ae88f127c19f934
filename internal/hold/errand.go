package hold

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// errand has the read that proves the next renewal ask about the holds on a lease that were polled before, if one Txn
// takes them. So a session at rest does not poll. What has changed is polled at the next look.
func (p *poller) errand(l *lease.Lease) *lease.Errand {
	var e lease.Errand
	holds := p.roster.polled(l)
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
		p.roster.askedAgain(holds, sent)
	}
	return &e
}
