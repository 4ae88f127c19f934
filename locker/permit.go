package locker

import (
	"context"

	"github.com/holdfast-go/holdfast/fencing"
)

// Permit is one acquisition of a [Semaphore]: one or more permits, which are held until they are released or lost, all
// together, and never again after that. It is safe for concurrent use.
//
// It has no token, as a [ReadLock] has none. Guards that compare tokens do not take it; fencing.NewFencedWriter does,
// and writes to etcd while the entry exists.
type Permit struct {
	single
	weight int
}

var _ fencing.Hold = (*Permit)(nil)

// Weight returns how many permits it is.
func (p *Permit) Weight() int { return p.weight }

// WithContext returns a child of ctx that is canceled when the permit is lost or released, as [Lock.WithContext] does.
// It carries no holder: fencing.FromContext finds none, although ctx may carry one.
func (p *Permit) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return p.context(carry(ctx, &p.handle))
}

// Release releases the permit, as [Lock.Unlock] does, with the same errors.
func (p *Permit) Release(ctx context.Context) error { return p.release(ctx) }
