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

// handle is an acquisition, until it is released or lost: what Lock, ReadLock, SetLock and Permit have in common. Its
// documentation is theirs. With Options.Reentrant, several can have the same hold.
type handle struct {
	hook   // ends the hold when a fenced write is refused
	hold   *hold.Hold
	own    *own // nil without Options.Reentrant: then the handle ends with the hold
	strict bool // contexts are canceled on suspension
}

// handle returns a handle of a hold, which it has for itself unless own says otherwise.
func (n *named) handle(h *hold.Hold, own *own) handle {
	return handle{requests.NewHook(h), h, own, n.opts.CancelOnSuspended}
}

// AcquiredRevision returns the etcd revision at which the hold was found to have begun: the store at that revision has
// what earlier holders did. It is at least the revision of a Lock's token, for clients that fence on revisions.
// Otherwise use the token.
func (h *handle) AcquiredRevision() int64 { return h.hold.AcquiredRevision() }

// String names what is held, with its token and its lease.
func (h *handle) String() string { return h.hold.String() }

// Lease returns the lease that the hold depends on.
func (h *handle) Lease() clientv3.LeaseID { return h.hold.Lease() }

// Client returns the session's etcd client.
func (h *handle) Client() *clientv3.Client { return h.hold.Client() }

// Holding returns comparisons for your own Txn, which are all true only during the hold: while all its entries exist.
// There is one for each entry, of which a TreeMutex and a Set have several.
//
//	cli.Txn(ctx).If(lk.Holding()...).Then(…)
func (h *handle) Holding() []clientv3.Cmp { return h.hold.Holding() }

// Check reports whether the hold goes on, without an RPC: nil; holdfast.ErrSuspended (perhaps: stop side effects); a
// *holdfast.LostError, which names the lock of a Set that was lost first; holdfast.ErrReleased. It is right even after
// a pause. Time passes between a Check and what follows it; only fencing closes that gap.
func (h *handle) Check() error {
	if err := h.ended(); err != nil {
		return err
	}
	return h.hold.Check()
}

// Progress says that the work goes on, for Options.MaxIdle. It returns what has ended the hold, a *holdfast.LostError
// or holdfast.ErrReleased, or nil:
//
//	for _, item := range items {
//		if err := lk.Progress(); err != nil {
//			return err
//		}
//		…
//	}
//
// It is for hot loops: it sends nothing, takes no lock and allocates nothing. It judges by the clock whether MaxIdle
// has passed, also after a pause, but not the lease, so it is nil while the session is suspended: before a side
// effect, call Check. Without MaxIdle it only says whether the hold has ended.
func (h *handle) Progress() error {
	if err := h.ended(); err != nil {
		return err
	}
	return h.hold.Progress()
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
	if h.own == nil {
		return h.hold.Context(ctx, h.strict)
	}
	return h.own.context(ctx, h)
}

// begin begins the work of a function under the handle.
func (h *handle) begin(onOverrun hold.OnOverrun) *hold.Work {
	var givenUp <-chan struct{} // of several handles of one hold each is given up by itself
	if h.own != nil {
		givenUp = h.own.givenUp
	}
	return hold.NewWork(h.hold, givenUp, onOverrun, h.strict)
}

// release ends the handle. The last one of a hold releases that.
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

// single is a handle of one name: that of a Lock, a ReadLock or a Permit.
type single struct{ handle }

// Name returns the name, or the prefix, as it was given to NewMutex, NewMutexAt and the like. It is what the token is
// valid for.
func (s *single) Name() string { return s.hold.Queue().Name() }

// Key returns the key of the entry in etcd.
func (s *single) Key() string { return s.hold.Key() }

// carried are the holds without a token that a context carries, to find the holder that asks again.
type carried struct {
	handle *handle
	outer  *carried
}

type carriedKey struct{}

// carry returns a context that carries a hold without a token.
func carry(ctx context.Context, h *handle) context.Context {
	outer, _ := ctx.Value(carriedKey{}).(*carried)
	return context.WithValue(fencing.NewContext(ctx, nil), carriedKey{}, &carried{h, outer})
}
