package locker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/stale"
	"github.com/holdfast-go/holdfast/session"
)

// Mutex is the name of an exclusive lock, with its options. Each acquisition is a *Lock. A
// Mutex is immutable, does no I/O when it is made, and may be copied and used by several
// goroutines.
type Mutex struct {
	queue *queue.Queue
	opts  Options
}

// NewMutex returns the lock with that name in the session's namespace; see CheckName. The
// first Lock returns an error if the name is invalid or the session nil.
func NewMutex(sess *session.Session, name string) *Mutex {
	return &Mutex{queue: queue.New(lease.Open(sess.Ref()), "lock", name)}
}

// NewMutexAt returns the lock that etcd's concurrency.NewMutex(s, prefix), "etcdctl lock"
// and v3lock use for the same prefix, and contends with them. Keys that are not entries are
// still in the session's namespace.
func NewMutexAt(sess *session.Session, prefix string) *Mutex {
	return &Mutex{queue: queue.At(lease.Open(sess.Ref()), "lock", prefix)}
}

// With returns a copy with other options.
func (m *Mutex) With(o Options) *Mutex { return &Mutex{queue: m.queue, opts: o} }

// Name returns the name or prefix as it was given.
func (m *Mutex) Name() string { return m.queue.Name() }

// Do acquires the lock, calls fn, and releases the lock when fn has returned. The context
// of fn is a child of ctx that is canceled when the lock is lost, with the reason as its
// context.Cause, and that carries the lock for fencing.
//
// If fn was not called, the error is an *AcquireError. Otherwise it is fn's own, joined
// with the *holdfast.LostError if the lock was lost while fn ran, even if fn returned nil
// or only the release reveals it. If the outcome of the release is unknown, that is not an
// error of Do: the work is done, and the session goes on releasing. If fn panics, Do
// releases the lock and the panic continues.
//
// Do cannot undo what fn writes while the lock is being lost to a pause: have the store
// compare the token.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return m.do(ctx, fn, m.Lock)
}

// TryDo is Do with TryLock. If the lock is held or waited for, fn is not called and the
// error Is ErrLocked.
func (m *Mutex) TryDo(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return m.do(ctx, fn, m.TryLock)
}

func (m *Mutex) do(
	ctx context.Context, fn func(context.Context, *Lock) error, lock func(context.Context) (*Lock, error),
) (err error) {
	if fn == nil {
		return m.failed(0, &holdfast.ArgumentError{Argument: "fn", Reason: "is nil"})
	}
	lk, err := lock(ctx)
	if err != nil {
		return err
	}
	fctx, cancel := lk.WithContext(ctx)
	// Deferred, so that a panic and runtime.Goexit in fn release, too.
	defer func() {
		cancel()
		if lost := lk.hold.ReleaseAfterWork(ctx); lost != nil && !carries(err, lost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(fctx, lk)
}

// carries reports whether err wraps this very loss, as it does if fn returned the cause of
// its context.
func carries(err error, lost *holdfast.LostError) bool {
	var found *holdfast.LostError
	return errors.As(err, &found) && found == lost
}

// Lock acquires the lock and waits its turn: first in, first out, among all processes in
// the order in which etcd received their requests, and among the goroutines of one session
// in the order of their calls. ctx bounds the acquisition only. When it ends, Lock waits for
// the answer to a request in flight and for its entry to be removed, for 250 ms at most.
//
// Any error is an *AcquireError and means that nothing is held; its Err field lists the
// reasons to test for. If the session loses its lease, the call does not end: it queues again
// under the session's next lease. Two calls are two contenders, even in one goroutine. But if
// ctx comes from a Lock of the same name that is still held, through the same client, the
// error Is holdfast.ErrReentrant.
func (m *Mutex) Lock(ctx context.Context) (*Lock, error) {
	return m.acquire(ctx, m.queue.Acquire)
}

// TryLock acquires the lock if it is neither held nor waited for. Otherwise the error Is
// ErrLocked, and nothing was queued. If only an entry of this session exists that is being
// removed, the error Is ErrUnconfirmed.
func (m *Mutex) TryLock(ctx context.Context) (*Lock, error) {
	return m.acquire(ctx, m.queue.TryAcquire)
}

func (m *Mutex) acquire(
	ctx context.Context, acquire func(context.Context, queue.Request) (*queue.Hold, error),
) (*Lock, error) {
	start := time.Now()
	if err := m.opts.validate(); err != nil {
		return nil, m.failed(0, err)
	}
	if ctx != nil && m.queue.Err() == nil && m.heldIn(ctx) {
		return nil, m.failed(0, holdfast.ErrReentrant)
	}
	hold, err := acquire(ctx, queue.Request{
		Owner: m.opts.Owner, Mode: "exclusive", MinHold: m.opts.MinHold, MaxHold: m.opts.MaxHold, Auditor: m.opts.Auditor,
	})
	if errors.Is(err, queue.ErrOccupied) {
		err = ErrLocked
	}
	if err != nil {
		return nil, m.failed(time.Since(start), err)
	}
	return &Lock{hook: stale.NewHook(hold), hold: hold, strict: m.opts.CancelOnSuspended}, nil
}

// heldIn reports whether ctx comes from a Lock of this name that is still held.
func (m *Mutex) heldIn(ctx context.Context) bool {
	for h := range fencing.Holders(ctx) {
		if lk, ok := h.(*Lock); ok && lk != nil && lk.hold.Queue().Same(m.queue) && lk.hold.Live() {
			return true
		}
	}
	return false
}

func (m *Mutex) failed(waited time.Duration, err error) error {
	e := &AcquireError{Name: m.Name(), Waited: waited, Err: err}
	if host := m.queue.Host(); host != nil {
		e.Lease, e.State = host.Lease().ID(), host.State()
	}
	return e
}
