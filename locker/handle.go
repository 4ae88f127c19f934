package locker

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// hook is an alias so that the field of handle is not exported.
type hook = requests.Hook

// handle is one acquisition. Lock, ReadLock, SetLock and Permit have it in common; its documentation is theirs. With
// Options.Reentrant several handles share one hold.
type handle struct {
	hook   // leads fenced writers to the hold
	hold   *hold.Hold
	own    *own // nil without Options.Reentrant: then the handle ends with the hold
	strict bool // contexts are canceled on suspension
}

// AcquiredRevision returns the etcd revision of the read which showed the hold: the store at that revision has what
// earlier holders did. It is at least the revision of a Lock's token. If you fence on revisions, use it; otherwise use
// the token.
func (h *handle) AcquiredRevision() int64 { return h.hold.AcquiredRevision() }

// String names what is held, with its token and its lease.
func (h *handle) String() string { return h.hold.String() }

// self finds the handle of what a context carries.
func (h *handle) self() *handle { return h }

// Lease returns the lease of the hold.
func (h *handle) Lease() clientv3.LeaseID { return h.hold.Lease() }

// Client returns the session's etcd client.
func (h *handle) Client() *clientv3.Client { return h.hold.Client() }

// Holding returns comparisons for your own Txn. They are all true only while all entries of the hold exist, as
// [fencing.Hold] says: during the hold, and perhaps after it. So ask Check first. A TreeMutex and a Set have several
// entries, with a comparison for each.
//
//	cli.Txn(ctx).If(lk.Holding()...).Then(…)
func (h *handle) Holding() []clientv3.Cmp { return h.hold.Holding() }

// Check reports whether the hold goes on, without an RPC: see [fencing.Source]. The *holdfast.LostError of a Set has
// the name of the lock that was lost first.
func (h *handle) Check() error {
	if err := h.ended(); err != nil {
		return err
	}
	return h.hold.Check()
}

// Done returns a channel that is closed when the hold is lost or released. Check says which.
func (h *handle) Done() <-chan struct{} {
	if h.own == nil {
		return h.hold.Done()
	}
	return h.own.done.Done()
}

// context returns a child of ctx that is canceled when the handle ends.
func (h *handle) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := h.hold.Context(ctx, h.strict)
	if h.own == nil {
		return ctx, cancel
	}
	return h.own.context(ctx, cancel)
}

// begin begins the work of a function under the handle.
func (h *handle) begin(onOverrun hold.OnOverrun) *hold.Work {
	var givenUp <-chan struct{} // each of several handles is given up by itself
	if h.own != nil {
		givenUp = h.own.givenUp
	}
	return hold.NewWork(h.hold, givenUp, onOverrun, h.strict)
}

// release ends the handle. The last handle of a hold releases the hold.
func (h *handle) release(ctx context.Context) error {
	if ctx == nil || h.own == nil || h.leave() {
		return h.hold.Release(ctx)
	}
	if lost := h.lost(); lost != nil {
		return lost
	}
	return nil
}

// releaseAfterWork is release for work that has finished. It returns the loss, if there is one.
func (h *handle) releaseAfterWork(ctx context.Context) *holdfast.LostError {
	if h.own == nil || h.leave() {
		return h.hold.ReleaseAfterWork(ctx)
	}
	return h.lost()
}

// single is a handle of one name. Lock, ReadLock and Permit have it in common.
type single struct{ handle }

// Name returns the name, or the prefix, as it was given to NewMutex, NewMutexAt and the like. The token is valid for
// it.
func (s *single) Name() string { return s.hold.Queue().Name() }

// Key returns the key of the entry in etcd.
func (s *single) Key() string { return s.hold.Key() }

// Lock is one acquisition of a Mutex. It is held until it is released or lost, and never again after that. It is safe
// for concurrent use, and a fencing.Holder.
type Lock struct{ single }

var _ fencing.Holder = (*Lock)(nil)

// Token returns the fencing token: larger than that of every earlier holder of this
// lock. Send it, with the lock's name, to whatever can compare it.
func (l *Lock) Token() holdfast.Token { return l.hold.Token() }

// WithContext returns a child of ctx. It carries the lock for fencing.FromContext, and is canceled when the lock is
// lost or released, or, with Options.CancelOnSuspended, is suspended. context.Cause is Check's error then. Call cancel
// when you're done with it.
func (l *Lock) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.context(fencing.NewContext(ctx, l))
}

// Unlock releases the lock. After the call the lock is not held, whatever is returned:
//
//   - nil: the entry is gone.
//   - a *holdfast.LostError: the lock had been lost before, or its lease was revoked before etcd answered. If an
//     administrator has ended the hold (CauseKicked, CauseRemoved), Unlock frees the name.
//   - an error that Is holdfast.ErrOutcomeUnknown: etcd did not answer before ctx ended. The session goes on removing
//     the entry, or it expires with the lease. Or the client's KV was replaced and has sent the removal twice: then the
//     entry is gone.
//   - an error of etcd, which refuses the removal, such as while the role lacks a permission: likewise.
//
// With Options.Reentrant, Unlock of a Lock whose hold has others ends this one and sends nothing: nil, or a
// *holdfast.LostError. Its contexts end soon after that.
//
// Unlock cancels the lock's contexts and waits for etcd until ctx ends or, if ctx is already done, for at most
// session.Options.CloseTimeout. So ctx may be a context of the lock. Further calls return the same, or a later outcome
// of the same release.
func (l *Lock) Unlock(ctx context.Context) error { return l.release(ctx) }

// ReadLock is one acquisition of an [RWMutex] for reading. It is held until it is released or lost, and never again
// after that. It is safe for concurrent use.
//
// A ReadLock has no token: others read at the same time, so a token could not tell who is late. Guards with tokens do
// not take it. etcdfence.NewWriter does, and writes to etcd while the lock's entry exists: while no
// writer holds.
type ReadLock struct{ single }

var _ fencing.Hold = (*ReadLock)(nil)

// WithContext returns a child of ctx. It is canceled as that of [Lock.WithContext], and carries no holder:
// fencing.FromContext finds none, although ctx may carry one.
func (l *ReadLock) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.context(fencing.NewContext(ctx, l))
}

// Unlock releases the lock, as [Lock.Unlock] does, with the same errors.
func (l *ReadLock) Unlock(ctx context.Context) error { return l.release(ctx) }

// Permit is one acquisition of a [Semaphore]: one or more permits, which are held until they are released or lost, all
// together, and never again after that. It is safe for concurrent use.
//
// It has no token, as a [ReadLock] has none. Guards with tokens do not take it; etcdfence.NewWriter does, and
// writes to etcd while the entry exists.
type Permit struct {
	single
	weight int
}

var _ fencing.Hold = (*Permit)(nil)

// Weight returns how many permits it is.
func (p *Permit) Weight() int { return p.weight }

// WithContext returns a child of ctx. It is canceled as that of [Lock.WithContext], and carries no holder:
// fencing.FromContext finds none, although ctx may carry one.
func (p *Permit) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return p.context(fencing.NewContext(ctx, p))
}

// Release releases the permit, as [Lock.Unlock] does, with the same errors.
func (p *Permit) Release(ctx context.Context) error { return p.release(ctx) }
