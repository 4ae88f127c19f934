package locker

import (
	"context"
)

// DowngradableLock is a Lock that can become a ReadLock without a moment in which a writer could come in between.
type DowngradableLock struct {
	*Lock
	named named
}

// LockDowngradable is Lock for a writer that wants to go on as a reader: see DowngradableLock.Downgrade. It has two
// entries in the queue instead of one, and takes as many requests as Lock; one that waits may wait for
// session.Options.LockDelay as a Set does. MinHold and Reentrant are not for it.
//
//	lk, err := m.LockDowngradable(ctx)
//	… // write
//	rd, err := lk.Downgrade(ctx)
//	… // read what was written, beside other readers
func (m *RWMutex) LockDowngradable(ctx context.Context) (*DowngradableLock, error) {
	n := m.named
	if err := n.opts.notFor("LockDowngradable"); err != nil {
		return nil, n.failed(0, err)
	}
	if q := n.first(); q != nil {
		n.queues = q.Downgradable()
	}
	holds, err := n.acquire(ctx, false)
	if err != nil {
		return nil, err
	}
	return &DowngradableLock{n.lock(handle{Hold: holds[0]}), n}, nil
}

// Downgrade releases the Lock, whose contexts end as with Unlock, and returns a ReadLock that has been held since
// before: no writer can hold in between. Readers that waited for the Lock hold beside it. MaxHold and MaxIdle begin
// again.
//
// The error is a *holdfast.LostError or holdfast.ErrReleased if the Lock had ended before, or if one of its entries was
// deleted; then nothing is held. (A Lock that was kicked keeps the name until Unlock, as any other.) If etcd does not
// answer before ctx ends, the ReadLock is held, and others wait until the session has removed the writer's entry. A ctx
// that has ended is treated as Unlock does. Unlock of the Lock does nothing after Downgrade: it may be deferred.
func (l *DowngradableLock) Downgrade(ctx context.Context) (*ReadLock, error) {
	hold, err := l.hold.Downgrade(ctx)
	if err != nil {
		return nil, err
	}
	return l.named.readLock(handle{Hold: hold}), nil
}
