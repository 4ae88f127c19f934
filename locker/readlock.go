package locker

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// ReadLock is one acquisition of an [RWMutex] for reading. It is held until it is released or lost, and never again
// after that. It is safe for concurrent use.
//
// A ReadLock has no token: others read at the same time, so a token could not tell who is late. Guards that compare
// tokens do not take it. fencing.NewFencedWriter does, and writes to etcd while the lock's entry exists: while no
// writer holds.
type ReadLock struct {
	hook   // ends the hold when a fenced write is refused
	hold   handle
	strict bool // contexts are canceled on suspension
}

var _ fencing.Owner = (*ReadLock)(nil)

// Name returns the name of the lock, or its prefix, as given to NewRWMutex or NewRWMutexAt.
func (l *ReadLock) Name() string { return l.hold.Queue().Name() }

// AcquiredRevision returns the etcd revision at which the lock was seen to be held. What a writer did before that is in
// the store at this revision.
func (l *ReadLock) AcquiredRevision() int64 { return l.hold.AcquiredRevision() }

// Lease returns the lease that the lock depends on.
func (l *ReadLock) Lease() clientv3.LeaseID { return l.hold.Lease() }

// Key returns the key of the lock's entry in etcd.
func (l *ReadLock) Key() string { return l.hold.Key() }

// Client returns the session's etcd client.
func (l *ReadLock) Client() *clientv3.Client { return l.hold.Client() }

// IsOwner returns a comparison for a Txn of your own, which is true while the entry of this acquisition exists.
func (l *ReadLock) IsOwner() clientv3.Cmp { return l.hold.IsOwner() }

// Check reports whether the lock is held now, without an RPC, as [Lock.Check] does.
func (l *ReadLock) Check() error { return l.hold.Check() }

// Progress says that the work under the lock goes on, for Options.MaxIdle, as [Lock.Progress] does.
func (l *ReadLock) Progress() error { return l.hold.Progress() }

// Done returns a channel that is closed when the lock is lost or released. Check says which.
func (l *ReadLock) Done() <-chan struct{} { return l.hold.Done() }

// WithContext returns a child of ctx that is canceled when the lock is lost or released, as [Lock.WithContext] does. It
// carries no holder: fencing.FromContext finds none, although ctx may carry one.
func (l *ReadLock) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.hold.Context(carry(ctx, l.hold), l.strict)
}

// carry returns a context that carries a hold without a token.
func carry(ctx context.Context, h handle) context.Context {
	outer, _ := ctx.Value(carriedKey{}).(*carried)
	return context.WithValue(fencing.NewContext(ctx, nil), carriedKey{}, &carried{h, outer})
}

// Unlock releases the lock, as [Lock.Unlock] does, with the same errors.
func (l *ReadLock) Unlock(ctx context.Context) error { return l.hold.Release(ctx) }

func (l *ReadLock) releaseAfterWork(ctx context.Context) *holdfast.LostError {
	return l.hold.ReleaseAfterWork(ctx)
}

// carried are the holds without a token that a context carries, to find the holder that asks again.
type carried struct {
	hold  handle
	outer *carried
}

type carriedKey struct{}
