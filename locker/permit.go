package locker

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// Permit is one acquisition of a [Semaphore]: one or more permits, which are held until they are released or lost, all
// together, and never again after that. It is safe for concurrent use.
//
// It has no token, as a [ReadLock] has none. Guards that compare tokens do not take it; fencing.NewFencedWriter does,
// and writes to etcd while the entry exists.
type Permit struct {
	hook   // ends the hold when a fenced write is refused
	hold   *queue.Hold
	weight int
	strict bool // contexts are canceled on suspension
}

var _ fencing.Owner = (*Permit)(nil)

// Name returns the name of the semaphore, as given to NewSemaphore.
func (p *Permit) Name() string { return p.hold.Queue().Name() }

// Weight returns how many permits it is.
func (p *Permit) Weight() int { return p.weight }

// AcquiredRevision returns the etcd revision at which the permit was seen to be held.
func (p *Permit) AcquiredRevision() int64 { return p.hold.AcquiredRevision() }

// Lease returns the lease that the permit depends on.
func (p *Permit) Lease() clientv3.LeaseID { return p.hold.Lease() }

// Key returns the key of the permit's entry in etcd.
func (p *Permit) Key() string { return p.hold.Key() }

// Client returns the session's etcd client.
func (p *Permit) Client() *clientv3.Client { return p.hold.Client() }

// IsOwner returns a comparison for a Txn of your own, which is true while the entry of this acquisition exists.
func (p *Permit) IsOwner() clientv3.Cmp { return p.hold.IsOwner() }

// Check reports whether the permit is held now, without an RPC, as [Lock.Check] does.
func (p *Permit) Check() error { return p.hold.Check() }

// Progress says that the work under the permit goes on, for Options.MaxIdle, as [Lock.Progress] does.
func (p *Permit) Progress() error { return p.hold.Progress() }

// Done returns a channel that is closed when the permit is lost or released. Check says which.
func (p *Permit) Done() <-chan struct{} { return p.hold.Done() }

// WithContext returns a child of ctx that is canceled when the permit is lost or released, as [Lock.WithContext] does.
// It carries no holder: fencing.FromContext finds none, although ctx may carry one.
func (p *Permit) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return p.hold.Context(carry(ctx, handle{Hold: p.hold}), p.strict)
}

// Release releases the permit, as [Lock.Unlock] does, with the same errors.
func (p *Permit) Release(ctx context.Context) error { return p.hold.Release(ctx) }

func (p *Permit) releaseAfterWork(ctx context.Context) *holdfast.LostError {
	return p.hold.ReleaseAfterWork(ctx)
}
