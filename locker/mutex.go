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

// Mutex is the name of an exclusive lock, with its policies. It holds nothing
// itself: each acquisition is a *Lock. It is immutable, does no I/O when made,
// and may be shared and copied freely.
type Mutex struct {
	queue *queue.Queue
	opts  Options
}

// NewMutex names a lock in the session's namespace; see CheckName. A bad name
// or a nil session is an error of the first Lock.
func NewMutex(sess *session.Session, name string) *Mutex {
	return &Mutex{queue: queue.New(lease.Open(sess.Ref()), "lock", name)}
}

// NewMutexAt names the lock that etcd's concurrency.NewMutex(s, prefix),
// "etcdctl lock" and v3lock use for the same prefix, and contends with them.
// The session's namespace is still used for what is not an entry.
func NewMutexAt(sess *session.Session, prefix string) *Mutex {
	return &Mutex{queue: queue.At(lease.Open(sess.Ref()), "lock", prefix)}
}

// With returns a copy with other policies.
func (m *Mutex) With(o Options) *Mutex { return &Mutex{queue: m.queue, opts: o} }

// Name is the name, or prefix, as it was given.
func (m *Mutex) Name() string { return m.queue.Name() }

// Do acquires the lock, runs fn, and releases when fn has returned. fn's
// context is done when the lock is lost (context.Cause says why), carries the
// holder for fencing, and is a child of ctx.
//
// An error before fn ran is an *AcquireError. Afterwards it is fn's own,
// joined with the *holdfast.LostError if the lock was lost meanwhile, even if fn
// returned nil and only the release has found that out. A release whose outcome
// is unknown is no error of Do: the work is done, and the session goes on
// releasing. A panic in fn releases and goes on panicking.
//
// Work that may run while the lock is being lost to a pause is not undone by
// Do: let what it writes to check the token.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return m.do(ctx, fn, m.Lock)
}

// TryDo is Do with TryLock: errors.Is(err, ErrLocked) when the lock is held or
// waited for, and fn was not run.
func (m *Mutex) TryDo(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return m.do(ctx, fn, m.TryLock)
}

func (m *Mutex) do(ctx context.Context, fn func(context.Context, *Lock) error, acquire func(context.Context) (*Lock, error)) (err error) {
	if fn == nil {
		return m.failed(0, &holdfast.ArgumentError{Argument: "fn", Reason: "is nil"})
	}
	lk, err := acquire(ctx)
	if err != nil {
		return err
	}
	fctx, cancel := lk.Context(ctx)
	// Deferred, so that a panic and a Goexit in fn release as well.
	defer func() {
		cancel()
		if lost := lk.hold.ReleaseAfterWork(ctx); lost != nil && !carries(err, lost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(fctx, lk)
}

// carries reports whether err has this very loss in its chain already, as when
// fn returned its context's cause.
func carries(err error, lost *holdfast.LostError) bool {
	var found *holdfast.LostError
	return errors.As(err, &found) && found == lost
}

// Lock acquires the lock, waiting its turn: first in, first out over all
// processes by the order in which etcd saw them, and among the goroutines of
// one session by the order of their calls. ctx bounds the acquisition only. When
// it ends, Lock waits for the answer to a request that is under way, and until
// etcd has removed its entry; cut off from etcd it returns after 250 ms.
//
// Any error is an *AcquireError and means that nothing is held; its Err field
// lists the reasons to test for. A lost session does not end the call: it
// queues again under the session's next lease until ctx ends. Two calls with a
// plain context are two contenders, also in one goroutine; a context from a
// live hold of the same lock, made with the same client, gets
// holdfast.ErrReentrant.
func (m *Mutex) Lock(ctx context.Context) (*Lock, error) {
	return m.acquire(ctx, m.queue.Acquire)
}

// TryLock acquires the lock if nobody holds it or waits for it; otherwise
// errors.Is(err, ErrLocked), and nothing was queued. If all that stands is an
// entry of this session that is being removed, it Is ErrUnconfirmed.
func (m *Mutex) TryLock(ctx context.Context) (*Lock, error) {
	return m.acquire(ctx, m.queue.TryAcquire)
}

func (m *Mutex) acquire(ctx context.Context, acquire func(context.Context, queue.Request) (*queue.Hold, error)) (*Lock, error) {
	start := time.Now()
	if err := m.opts.check(); err != nil {
		return nil, m.failed(0, err)
	}
	if ctx != nil && m.queue.Err() == nil && m.heldIn(ctx) {
		return nil, m.failed(0, holdfast.ErrReentrant)
	}
	hold, err := acquire(ctx, queue.Request{
		Owner: m.opts.Owner, Mode: "exclusive", MaxHold: m.opts.MaxHold, Auditor: m.opts.Auditor,
	})
	if errors.Is(err, queue.ErrOccupied) {
		err = ErrLocked
	}
	if err != nil {
		return nil, m.failed(time.Since(start), err)
	}
	return &Lock{hook: stale.NewHook(hold), hold: hold, strict: m.opts.CancelOnSuspended}, nil
}

// heldIn reports whether ctx comes from a live hold of this lock.
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
	if sess := m.queue.Host(); sess != nil {
		e.Lease, e.State = sess.Lease().ID(), sess.State()
	}
	return e
}
