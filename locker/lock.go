package locker

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Lock is one acquisition of a Mutex. It is held until it is released or lost, and never again after that. It is safe
// for concurrent use, and a fencing.Holder.
type Lock struct{ writeLock }

// writeLock is what a Lock and a DowngradableLock have in common. Its documentation is theirs.
type writeLock struct{ single }

var _ fencing.Holder = (*Lock)(nil)

// Token returns the fencing token: larger than that of every earlier holder of this
// lock. Send it, with the lock's name, to whatever can compare it.
func (l *writeLock) Token() holdfast.Token { return l.hold.Token() }

// WithContext returns a child of ctx that carries the lock for fencing.FromContext and is canceled when the lock is
// lost or released, or, with Options.CancelOnSuspended, is suspended. context.Cause is Check's error then. Call cancel
// when done with it.
func (l *Lock) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.context(fencing.NewContext(ctx, l))
}

// Unlock releases the lock. After the call the lock is not held, whatever is returned:
//
//   - nil: the entry is gone.
//   - a *holdfast.LostError: the lock had been lost before, or its lease was revoked before etcd answered. If an
//     administrator has ended the hold (CauseKicked, CauseRemoved), it is Unlock that frees the name.
//   - an error that Is holdfast.ErrOutcomeUnknown: etcd did not answer before ctx ended. The session goes on removing
//     the entry, or it expires with the lease. Or the client's KV was replaced and has sent the removal twice: then the
//     entry is gone.
//
// With Options.Reentrant, Unlock of a Lock whose hold has others ends this one and sends nothing: nil, or a
// *holdfast.LostError.
//
// Unlock cancels the lock's contexts and waits for etcd until ctx ends or, if ctx is already done, for at most
// session.Options.CloseTimeout. So ctx may be a context of the lock. Further calls return the same, or a later outcome
// of the same release.
func (l *writeLock) Unlock(ctx context.Context) error { return l.release(ctx) }
