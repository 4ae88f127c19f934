package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// Mutex is the name of an exclusive lock, with its options. It is immutable, does no I/O when made, and may be copied
// and used by any number of goroutines.
type Mutex struct{ mutex }

// mutex is what a Mutex and an RWMutex have in common: a lock for one holder alone. Its documentation is theirs.
type mutex struct{ named named }

// NewMutex names a lock in the session's namespace; see CheckName. A bad name or a nil session is an error of the
// first call.
func NewMutex(sess *session.Session, name string) *Mutex {
	return newMutex(queue.New(lease.Open(sess), holdfast.KindLock, name))
}

// NewMutexAt names the lock of etcd's concurrency.NewMutex(s, prefix), "etcdctl lock" and v3lock at the same prefix,
// and contends with them. Give exactly the prefix that they have: "/jobs/" is another lock than "/jobs", with entries
// below "/jobs//", and both can be held.
func NewMutexAt(sess *session.Session, prefix string) *Mutex {
	return newMutex(queue.At(lease.Open(sess), holdfast.KindLock, prefix))
}

func newMutex(q *queue.Queue) *Mutex {
	return &Mutex{mutex{named{queues: queue.Set{q}, keeps: true, shares: true}}}
}

// With returns a copy with these options, in place of those it had.
func (m *Mutex) With(o Options) *Mutex { return &Mutex{mutex{m.named.with(o)}} }

// Name returns the name or prefix as it was given.
func (m *mutex) Name() string { return m.named.first().Name() }

// Do acquires the lock, calls fn, and releases the lock when fn has returned. fn's context is a child of ctx. It
// carries the lock for package fencing, and is canceled when the lock is lost; context.Cause says why. It may have
// ended before fn is called.
//
// If fn was not called, the error is a *view.AcquireError. Otherwise it is fn's own, joined with the
// *holdfast.LostError if the lock was lost while fn ran, even if fn returned nil or only the release reveals it. A
// release with an unknown outcome is not an error. fn may call Unlock. If fn panics, Do releases the lock and the panic
// continues; so with runtime.Goexit.
func (m *mutex) Do(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return do(ctx, m.named, fn, m.Lock)
}

// TryDo is Do with TryLock: it does not call fn if the error Is ErrLocked.
func (m *mutex) TryDo(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return do(ctx, m.named, fn, m.TryLock)
}

// grant is a *Lock, a *ReadLock, a *Permit or a *SetLock.
type grant interface {
	WithContext(ctx context.Context) (context.Context, context.CancelFunc)
	begin(onOverrun hold.OnOverrun) *hold.Work
	releaseAfterWork(ctx context.Context) *holdfast.LostError
}

// do is Do and its kind: acquire acquires the lock.
func do[G grant](
	ctx context.Context, n named, fn func(context.Context, G) error, acquire func(context.Context) (G, error),
) (err error) {
	if fn == nil {
		return n.failed(0, &holdfast.ArgumentError{Argument: "fn", Reason: "is nil"})
	}
	lk, err := acquire(ctx)
	if err != nil {
		return err
	}
	fctx, cancel := lk.WithContext(ctx)
	work := lk.begin(n.opts.OnOverrun)
	// Deferred, so that a panic and runtime.Goexit in fn release, too.
	defer func() {
		work.End()
		cancel()
		err = hold.Join(err, lk.releaseAfterWork(ctx))
	}()
	return fn(fctx, lk)
}

// Lock acquires the lock and waits its turn: first in, first out, across processes in the order in which etcd received
// them, on one session in the order of the calls. ctx bounds the acquisition only. When it ends, Lock waits for its
// entry to be removed, for 250 ms at most.
//
// An error is a *view.AcquireError: its Err field lists the errors.Is targets, and its Place says which client holds.
// If the session loses its lease, the call queues again under the next lease. Two calls are two contenders, even in one
// goroutine: the second waits for itself until ctx ends. But with a context of a Lock of the same name and client,
// while that is held, the error Is holdfast.ErrReentrant, or the hold is shared: see Options.Reentrant.
func (m *mutex) Lock(ctx context.Context) (*Lock, error) { return lockOf(m.named.acquire(ctx, false)) }

// TryLock acquires the lock if it is neither held nor waited for. Otherwise the error Is ErrLocked, and its Place says
// who holds; behind a goroutine of the same session, which costs no request, only how many are ahead. Nothing was
// queued.
//
// TryLock answers at once, except behind a dead holder: if the last holder went without a release, it waits for the
// lock delay. If ctx ends before that, the error Is ErrLocked as well as ctx's. A call of the session right after
// that waits for the rest only; one after 1.5 s, by default, may wait for the whole delay, once.
func (m *mutex) TryLock(ctx context.Context) (*Lock, error) {
	return lockOf(m.named.acquire(ctx, true))
}

// lockOf returns the Lock of a handle, or the error of acquire.
func lockOf(h handle, err error) (*Lock, error) {
	if err != nil {
		return nil, err
	}
	return &Lock{single{h}}, nil
}

// named is what an acquisition acquires: the name of a lock as writers or as readers use it, or several, with options.
type named struct {
	queues queue.Set // the first has the name of the lock; none in a Mutex{}
	text   string    // for errors; empty: the name
	opts   Options

	keeps  bool // Options.MinHold is for it: it is a Mutex
	shares bool // Options.Reentrant is for it: it is a Mutex or an RWMutex
}

// maxMinHold bounds Options.MinHold: only an administrator can free a name that is taken by mistake.
const maxMinHold = 31 * 24 * time.Hour

// with returns what is named, with these options.
func (n named) with(o Options) named {
	n.opts = o
	return n
}

// check returns what is wrong with the options, or nil.
func (n *named) check() error {
	bad := func(argument, reason string) error {
		return &holdfast.ArgumentError{Argument: "Options." + argument, Reason: reason}
	}
	switch least := n.opts.MinHold; {
	case len(n.opts.Owner) > layout.MaxText:
		return bad("Owner", fmt.Sprintf("is longer than %d bytes", layout.MaxText))
	case n.opts.MaxHold < 0:
		return bad("MaxHold", "is negative")
	case least < 0:
		return bad("MinHold", "is negative")
	case least > maxMinHold:
		return bad("MinHold", "is longer than 31 days")
	case n.opts.MaxHold > 0 && least > n.opts.MaxHold:
		return bad("MinHold", "is longer than Options.MaxHold")
	case least > 0 && !n.keeps && n.first() != nil:
		return bad("MinHold", "is for a Mutex alone")
	case n.opts.Reentrant && !n.shares && n.first() != nil:
		return bad("Reentrant", "is for a Mutex and an RWMutex alone")
	default:
		return nil
	}
}

// first returns the first queue, or nil.
func (n *named) first() *queue.Queue {
	if len(n.queues) == 0 {
		return nil
	}
	return n.queues[0]
}

// acquire acquires what is named: a hold for each queue, Together with that of the handle. With try it does not wait.
// With Options.Reentrant, and a context of a hold, it may return another handle of that hold.
func (n *named) acquire(ctx context.Context, try bool) (handle, error) {
	if err := n.check(); err != nil {
		return handle{}, n.failed(0, err)
	}
	if outer := n.carriedBy(ctx); outer != nil {
		if !n.opts.Reentrant {
			return handle{}, n.failed(0, n.reentrant(outer.hold))
		}
		// A hold on its way out can't be shared: this call waits for it.
		if h, err := n.reenter(outer); err != nil {
			return handle{}, n.failed(0, err)
		} else if h.hold != nil {
			return h, nil
		}
	}
	start := time.Now()
	r := hold.Request{
		Request: queue.Request{Owner: n.opts.Owner, OnWait: n.opts.OnWait, Try: try},
		MinHold: n.opts.MinHold, MaxHold: n.opts.MaxHold, Auditor: n.opts.Auditor,
	}
	if try {
		r.OnWait = nil
	}
	grants, err := n.queues.Acquire(ctx, r.Request)
	if err == nil {
		first := hold.Begin(grants, r)[0]
		if n.opts.Reentrant {
			return n.handle(first, newOwn(first, nil)), nil
		}
		return n.handle(first, nil), nil
	}
	failed := n.failed(time.Since(start), err)
	switch {
	case errors.Is(err, queue.ErrInDelay):
		failed.Err = fmt.Errorf("%w: %w", ErrLocked, failed.Err)
	case errors.Is(err, queue.ErrOwnSession):
		failed.Err = fmt.Errorf("%w: by a goroutine of this session", ErrLocked)
	case errors.Is(err, queue.ErrOccupied):
		failed.Err = ErrLocked
	}
	return handle{}, failed
}

// handle returns a handle of a hold. own is nil if the handle has the hold for itself.
func (n *named) handle(h *hold.Hold, own *own) handle {
	return handle{requests.NewHook(h), h, own, n.opts.CancelOnSuspended}
}

// readLock returns a ReadLock of a hold.
func (n *named) readLock(h *hold.Hold) *ReadLock { return &ReadLock{single{n.handle(h, nil)}} }

// carriedBy returns the handle of ctx whose hold still has an entry in one of the queues, or nil. For a ctx that is nil
// or has ended it returns nil: the queue has an error for that.
func (n *named) carriedBy(ctx context.Context) *handle {
	if ctx == nil || ctx.Err() != nil {
		return nil
	}
	for carried := range fencing.Holds(ctx) {
		of, ours := carried.(interface{ self() *handle })
		if !ours {
			continue
		}
		if h := of.self(); h.hold.Blocks() && slices.ContainsFunc(h.hold.Together(), n.meets) {
			return h
		}
	}
	return nil
}

// reentrant returns the error for a caller whose context comes from h. Of several names it says which is held.
func (n *named) reentrant(h *hold.Hold) error {
	met := h.Together()[slices.IndexFunc(h.Together(), n.meets)].Queue().Name()
	switch path := h.Queue(); {
	case path.Kind() == holdfast.KindTree && path.Name() != met:
		return fmt.Errorf("%w: %s, for %s", holdfast.ErrReentrant, names.Quote(met), names.Quote(path.Name()))
	case len(n.queues) > 1:
		return fmt.Errorf("%w: %s", holdfast.ErrReentrant, names.Quote(met))
	default:
		return holdfast.ErrReentrant
	}
}

// meets reports whether a hold has its entry in one of the queues.
func (n *named) meets(h *hold.Hold) bool {
	return slices.ContainsFunc(n.queues, func(q *queue.Queue) bool { return q.Err() == nil && h.Queue().Same(q) })
}

func (n *named) failed(waited time.Duration, err error) *view.AcquireError {
	return hold.Failed(n.first(), cmp.Or(n.text, n.first().Name()), waited, err)
}
