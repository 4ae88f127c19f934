package locker

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// DowngradableLock is a [Lock] that can become a [ReadLock] with no writer in between.
// It is a fencing.Holder.
type DowngradableLock struct {
	Lock  // contexts carry it
	named named
}

var _ fencing.Holder = (*DowngradableLock)(nil)

// LockDowngradable is Lock for a writer on its way to reading: see DowngradableLock.Downgrade. It has two entries in
// the queue, and takes as many requests as Lock; a call in the queue may wait for session.Options.LockDelay as a Set
// does. With Options.Reentrant it is refused.
//
//	lk, err := m.LockDowngradable(ctx)
//	… // write
//	rd, err := lk.Downgrade(ctx)
//	… // read what was written, beside other readers
func (m *RWMutex) LockDowngradable(ctx context.Context) (*DowngradableLock, error) {
	n := m.named
	if n.opts.Reentrant {
		return nil, n.failed(0, &holdfast.ArgumentError{Argument: "Options.Reentrant", Reason: "is set: a lock that can be " +
			"downgraded is not shared"})
	}
	if q := n.first(); q != nil {
		n.queues = q.Downgradable()
	}
	lk, err := lockOf(n.acquire(ctx, false))
	if err != nil {
		return nil, err
	}
	return &DowngradableLock{*lk, n}, nil
}

// DoDowngradable acquires the lock as LockDowngradable does, calls write, downgrades, calls read, and releases the
// lock. No writer holds between the two, and readers hold beside read. Each function gets a context as that of Do,
// with what it holds: write's ends with the downgrade.
//
// The error is that of Do. read is not called if write has returned an error, or if the lock was lost or unlocked
// before the downgrade: then the error says that, too (*holdfast.LostError, holdfast.ErrReleased).
func (m *RWMutex) DoDowngradable(
	ctx context.Context, write func(context.Context, *Lock) error, read func(context.Context, *ReadLock) error,
) error {
	if write == nil || read == nil {
		return m.named.failed(0, &holdfast.ArgumentError{Argument: "write, read", Reason: "must not be nil"})
	}
	return do(ctx, m.named, func(fctx context.Context, lk *DowngradableLock) error {
		if err := write(fctx, &lk.Lock); err != nil {
			return err
		}
		return do(ctx, m.readers, read, lk.Downgrade)
	}, m.LockDowngradable)
}

// Downgrade releases the Lock, ends its contexts as Unlock does, and returns a ReadLock. The ReadLock has been held
// since before: no writer can hold in between. Readers behind the Lock hold beside it. MaxHold begins again.
//
// The error is a *holdfast.LostError or holdfast.ErrReleased if the Lock had ended before, or if one of its entries
// was deleted; then nothing is held. (A kicked Lock keeps the name until Unlock, as any other.) If etcd does
// not answer before ctx ends, the ReadLock is held, and others wait until the session has removed the writer's entry.
// A ctx that has ended is treated as Unlock does. Unlock of the Lock does nothing after Downgrade: it may be deferred.
func (l *DowngradableLock) Downgrade(ctx context.Context) (*ReadLock, error) {
	hold, err := l.hold.Downgrade(ctx)
	if err != nil {
		return nil, err
	}
	return l.named.readLock(hold), nil
}
