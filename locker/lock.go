package locker

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/stale"
)

// hook is an alias so that the field of Lock is not exported.
type hook = stale.Hook

// Lock is one acquisition of a Mutex: held until Unlock or loss, and never
// held again after either. All methods may be called from any goroutine.
//
// A Lock is a fencing.Holder: hand it to what checks tokens.
type Lock struct {
	hook   // ends the hold when a fenced write is refused
	hold   *queue.Hold
	strict bool // contexts end on suspension already
}

var (
	_ fencing.Holder = (*Lock)(nil)
)

// Name is the name of the lock, or its prefix, as it was given to NewMutex or
// NewMutexAt: what the token is to be sent with.
func (l *Lock) Name() string { return l.hold.Queue().Name() }

// Token is the fencing token: larger than that of every earlier holder of this
// lock. Send it, with the lock's name, to whatever can compare it.
func (l *Lock) Token() fencing.Token { return l.hold.Token() }

// AcquiredRevision is the etcd revision at which the lock was seen to be held;
// at least the token's revision. It is for fleets that mix with clients which
// fence on the header revision; otherwise use Token.
func (l *Lock) AcquiredRevision() int64 { return l.hold.AcquiredRevision() }

// Lease is the lease the lock depends on.
func (l *Lock) Lease() clientv3.LeaseID { return l.hold.Lease() }

// Key is the key of the lock's entry in etcd.
func (l *Lock) Key() string { return l.hold.Key() }

// Client is the session's etcd client.
func (l *Lock) Client() *clientv3.Client { return l.hold.Client() }

// IsOwner is a comparison for a Txn of your own: true while this acquisition's
// entry stands. fencing.NewFencedWriter does it for you.
func (l *Lock) IsOwner() clientv3.Cmp { return l.hold.IsOwner() }

// Check says, judged now and without an RPC, whether the lock is held: nil;
// holdfast.ErrSuspended (perhaps: stop side effects for now); a
// *holdfast.LostError (no, for good); holdfast.ErrReleased. It reads the clock,
// so it is right even before any timer has fired after a pause. Between a
// Check and what follows it time passes: only a fence closes that gap.
func (l *Lock) Check() error { return l.hold.Check() }

// Done is closed when the lock is lost or released. Check says which.
func (l *Lock) Done() <-chan struct{} { return l.hold.Done() }

// Context returns a child of ctx that is done when the lock is lost or
// released, with a *holdfast.LostError or holdfast.ErrReleased as its
// context.Cause, and that carries the lock for fencing.FromContext. With
// Options.CancelOnSuspended it is done on suspension too. If the lock has ended
// before, the context is done when Context returns. Call cancel when done with it.
func (l *Lock) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.hold.Context(fencing.NewContext(ctx, l), l.strict)
}

// Unlock releases the lock. Once called, the lock is not held, whatever it
// returns:
//
//   - nil: the entry is gone;
//   - a *holdfast.LostError: the lock had been lost before, or the lease was
//     revoked before etcd answered, and so perhaps before Unlock was called;
//   - an error that Is holdfast.ErrOutcomeUnknown: etcd did not answer before
//     ctx ended; the session goes on removing the entry, and if it cannot, the
//     entry goes with the lease.
//
// The contexts of the lock end first. Then Unlock waits until ctx ends, or, if
// ctx is dead by then, for at most the session's CloseTimeout; so a dead context
// will do, and so will the lock's own. Calling Unlock again, from anywhere, is
// harmless and gives the same answer, or a later one of the same release.
func (l *Lock) Unlock(ctx context.Context) error { return l.hold.Release(ctx) }
