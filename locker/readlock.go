package locker

import (
	"context"

	"github.com/holdfast-go/holdfast/fencing"
)

// ReadLock is one acquisition of an [RWMutex] for reading. It is held until it is released or lost, and never again
// after that. It is safe for concurrent use.
//
// A ReadLock has no token: others read at the same time, so a token could not tell who is late. Guards that compare
// tokens do not take it. fencing.NewFencedWriter does, and writes to etcd while the lock's entry exists: while no
// writer holds.
type ReadLock struct{ single }

var _ fencing.Hold = (*ReadLock)(nil)

// WithContext returns a child of ctx that is canceled when the lock is lost or released, as [Lock.WithContext] does. It
// carries no holder: fencing.FromContext finds none, although ctx may carry one.
func (l *ReadLock) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.context(carry(ctx, &l.handle))
}

// Unlock releases the lock, as [Lock.Unlock] does, with the same errors.
func (l *ReadLock) Unlock(ctx context.Context) error { return l.release(ctx) }
