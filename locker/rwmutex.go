package locker

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// RWMutex is the name of a lock for one writer or any number of readers. It is the [Mutex] of that name, with
// readers: both have one queue, and a Mutex excludes readers as a writer does. It is immutable, does no I/O when made,
// and may be copied and used by any number of goroutines.
//
// Readers in a row in the queue are admitted together. A reader behind a waiting writer waits for it, so a stream of
// readers does not starve writers:
//
//	rev 10  A reads
//	rev 12  B reads beside A
//	rev 15  C wants to write: it waits for A and B
//	rev 16  D wants to read: it waits for C
//
// There is no upgrade from reading to writing: two readers would wait for each other for ever. Unlock, and then Lock.
//
// A writer behind several readers, or a reader behind several writers, waits for session.Options.LockDelay as well if
// the lease of one of them has ended meanwhile, but not by Session.Close.
type RWMutex struct {
	mutex   // for writers
	readers named
}

// NewRWMutex names a lock in the session's namespace; see CheckName. A bad name or a nil session is an error of the
// first call.
func NewRWMutex(sess *session.Session, name string) *RWMutex {
	return withReaders(NewMutex(sess, name).mutex)
}

// NewRWMutexAt is NewRWMutex for a prefix as NewMutexAt takes it. etcd's own locks there exclude readers, and wait for
// them.
func NewRWMutexAt(sess *session.Session, prefix string) *RWMutex {
	return withReaders(NewMutexAt(sess, prefix).mutex)
}

func withReaders(m mutex) *RWMutex {
	m.named.keeps = false
	readers := m.named
	readers.queues = queue.Set{m.named.first().Readers()}
	return &RWMutex{mutex: m, readers: readers}
}

// With is Mutex.With. For a MinHold of writers use the Mutex of the name.
//
// With Options.Reentrant a Lock covers RLock of its name. A ReadLock covers RLock. It does not cover Lock: two readers
// would wait for each other, so Lock fails with holdfast.ErrReentrant. After Unlock of the Lock, an RLock within it
// keeps other readers out until it is unlocked: to go on beside them, use LockDowngradable.
func (m *RWMutex) With(o Options) *RWMutex {
	return withReaders(mutex{m.named.with(o)})
}

// RDo is Do with RLock.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context, lk *ReadLock) error) error {
	return do(ctx, m.readers, fn, m.RLock)
}

// TryRDo is Do with TryRLock: it does not call fn if the error Is ErrLocked.
func (m *RWMutex) TryRDo(ctx context.Context, fn func(ctx context.Context, lk *ReadLock) error) error {
	return do(ctx, m.readers, fn, m.TryRLock)
}

// RLock acquires the lock for reading. It waits until no writer holds the lock or waits ahead of it, and otherwise as
// Lock does, with the same errors. Each reading goroutine has an entry in etcd, also within one session. With a
// context of a Lock or ReadLock of the same name, while it is held, the error Is holdfast.ErrReentrant: a writer in
// between would make both wait for ever. Options.Reentrant shares the hold instead.
func (m *RWMutex) RLock(ctx context.Context) (*ReadLock, error) {
	return readLockOf(m.readers.acquire(ctx, false))
}

// TryRLock acquires the lock for reading if no writer holds it or waits. Otherwise the error Is ErrLocked, and its
// Place says who holds. Nothing was queued.
func (m *RWMutex) TryRLock(ctx context.Context) (*ReadLock, error) {
	return readLockOf(m.readers.acquire(ctx, true))
}

// readLockOf returns the ReadLock of a handle, or the error of acquire.
func readLockOf(h handle, err error) (*ReadLock, error) {
	if err != nil {
		return nil, err
	}
	return &ReadLock{single{h}}, nil
}
