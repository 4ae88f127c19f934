package locker

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/stale"
)

// hook is an alias so that the field of Lock is not exported.
type hook = stale.Hook

// Lock is one acquisition of a Mutex. It is held until it is released or lost, and never again after that. It is safe
// for concurrent use, and a fencing.Holder.
type Lock struct {
	hook   // ends the hold when a fenced write is refused
	hold   handle
	strict bool // contexts are canceled on suspension
}

var _ fencing.Holder = (*Lock)(nil)

// Name returns the name of the lock, or its prefix, as given to NewMutex or NewMutexAt.
// The token is valid for this name.
func (l *Lock) Name() string { return l.hold.Queue().Name() }

// Token returns the fencing token: larger than that of every earlier holder of this
// lock. Send it, with the lock's name, to whatever can compare it.
func (l *Lock) Token() fencing.Token { return l.hold.Token() }

// AcquiredRevision is the etcd revision at which the lock was found to be held, at least the token's, for clients that
// fence on revisions. Otherwise use Token.
func (l *Lock) AcquiredRevision() int64 { return l.hold.AcquiredRevision() }

// Lease returns the lease that the lock depends on.
func (l *Lock) Lease() clientv3.LeaseID { return l.hold.Lease() }

// Key returns the key of the lock's entry in etcd.
func (l *Lock) Key() string { return l.hold.Key() }

// Client returns the session's etcd client.
func (l *Lock) Client() *clientv3.Client { return l.hold.Client() }

// IsOwner returns a comparison for your own Txn: the entry of this acquisition exists. A lock of a Set or a TreeMutex
// has others beside it: see SetLock.IsOwner and TreeMutex.
func (l *Lock) IsOwner() clientv3.Cmp { return l.hold.IsOwner() }

// Check reports whether the lock is held now, without an RPC: nil; holdfast.ErrSuspended (perhaps: stop side effects);
// a *holdfast.LostError; holdfast.ErrReleased. It is right even after a pause. Time passes between a Check and what
// follows it; only fencing closes that gap.
func (l *Lock) Check() error { return l.hold.Check() }

// Progress says that the work under the lock goes on, for Options.MaxIdle. It returns what
// has ended the lock, a *holdfast.LostError or holdfast.ErrReleased, or nil:
//
//	for _, item := range items {
//		if err := lk.Progress(); err != nil {
//			return err
//		}
//		…
//	}
//
// It is for hot loops: it sends nothing, takes no lock and allocates nothing. It judges by
// the clock whether MaxIdle has passed, also after a pause, but not the lease, so it is nil
// while the session is suspended: before a side effect, call Check. Without MaxIdle it only
// says whether the lock has ended.
func (l *Lock) Progress() error { return l.hold.Progress() }

// Done returns a channel that is closed when the lock is lost or released. Check says
// which.
func (l *Lock) Done() <-chan struct{} { return l.hold.Done() }

// WithContext returns a child of ctx that carries the lock for fencing.FromContext and is canceled when the lock is
// lost or released, or, with Options.CancelOnSuspended, is suspended. context.Cause is Check's error then. Call cancel
// when done with it.
func (l *Lock) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.hold.Context(fencing.NewContext(ctx, l), l.strict)
}

// Unlock releases the lock. After the call the lock is not held, whatever is returned:
//
//   - nil: the entry is gone.
//   - a *holdfast.LostError: the lock had been lost before, or its lease was revoked before etcd answered. If an
//     administrator has ended the hold (CauseKicked, CauseRemoved), it is Unlock that frees the name.
//   - an error that Is holdfast.ErrOutcomeUnknown: etcd did not answer before ctx ended. The session goes on removing
//     the entry, or it expires with the lease.
//
// With Options.Reentrant, Unlock of a Lock whose hold has others ends this one and sends nothing: nil, or a
// *holdfast.LostError.
//
// Unlock cancels the lock's contexts and waits for etcd until ctx ends or, if ctx is already done, for at most
// session.Options.CloseTimeout. So ctx may be a context of the lock. Further calls return the same, or a later outcome
// of the same release.
func (l *Lock) Unlock(ctx context.Context) error { return l.hold.Release(ctx) }

func (l *Lock) releaseAfterWork(ctx context.Context) *holdfast.LostError {
	return l.hold.ReleaseAfterWork(ctx)
}
