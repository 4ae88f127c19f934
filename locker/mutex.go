package locker

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
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

// NewMutexAt names the lock that etcd's concurrency.NewMutex(s, prefix), "etcdctl lock" and v3lock use for the same
// prefix, and contends with them. "/jobs/" is another lock than "/jobs": see session.Options.TrailingSlash.
func NewMutexAt(sess *session.Session, prefix string) *Mutex {
	return newMutex(queue.At(lease.Open(sess), holdfast.KindLock, prefix))
}

func newMutex(q *queue.Queue) *Mutex {
	return &Mutex{mutex{named{queues: queue.Set{q}, keeps: true, shares: true}}}
}

// With returns a copy with these options, in place of those it had.
func (m *Mutex) With(o Options) *Mutex {
	with := *m
	with.named.opts = o
	with.named.check()
	return &with
}

// Name returns the name or prefix as it was given.
func (m *mutex) Name() string { return m.named.first().Name() }

// Do acquires the lock, calls fn, and releases the lock when fn has returned. fn's context is a child of ctx that
// carries the lock for package fencing and is canceled when the lock is lost; context.Cause says why.
//
// If fn was not called, the error is an *AcquireError. Otherwise it is fn's own, joined with the *holdfast.LostError
// if the lock was lost while fn ran, even if fn returned nil or only the release reveals it. A release with an unknown
// outcome is not an error. fn may call Unlock. If fn panics, Do releases the lock and the panic continues; so with
// runtime.Goexit.
func (m *mutex) Do(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return do(ctx, m.named, fn, m.Lock)
}

// TryDo is Do with TryLock: it does not call fn if the error Is ErrLocked.
func (m *mutex) TryDo(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return do(ctx, m.named, fn, m.TryLock)
}

// grant is a *Lock or a *ReadLock.
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
// An error is an *AcquireError, whose Err field lists the errors.Is targets and whose Place says which client holds.
// If the session loses its lease, the call queues again under the next one. Two calls are two contenders, even in one
// goroutine, which then waits for itself until ctx ends; but with a context of a Lock of the same name and client that
// is still held, the error Is holdfast.ErrReentrant, or the hold is shared: see Options.Reentrant.
func (m *mutex) Lock(ctx context.Context) (*Lock, error) {
	h, err := m.named.acquire(ctx, exclusive, false)
	if err != nil {
		return nil, err
	}
	return &Lock{writeLock{single{h}}}, nil
}

// TryLock acquires the lock if it is neither held nor waited for. Otherwise the error Is ErrLocked, and its Place says
// who holds. Nothing was queued.
//
// TryLock answers at once, except behind a holder that died: if none holds, but the last one went without a release,
// it waits for the lock delay. If ctx ends before that, the error Is ErrLocked as well as ctx's, and a later call of
// the session waits for the rest only.
func (m *mutex) TryLock(ctx context.Context) (*Lock, error) {
	h, err := m.named.acquire(ctx, exclusive, true)
	if err != nil {
		return nil, err
	}
	return &Lock{writeLock{single{h}}}, nil
}
