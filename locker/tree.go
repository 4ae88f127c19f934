package locker

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// TreeMutex is an exclusive lock of a path: it excludes the same path, every path below it, and every path above it.
// Siblings exclude each other in nothing.
//
//	locker.NewTreeMutex(sess, "billing")       // excludes the next two
//	locker.NewTreeMutex(sess, "billing/job-7") // and this one does not exclude the next
//	locker.NewTreeMutex(sess, "billing/job-8")
//
// It is a kind of lock of its own: the Mutex of the same name is another lock. It costs one entry in etcd for each
// segment of the path, put by one transaction, so an acquisition takes as many requests as with a Mutex. Callers are
// served in order: while "billing" is waited for, later callers of "billing/job-9" wait, too.
//
// The path names the resource for guards with tokens. They do not compare the holder of "billing" with the holder of
// "billing/job-7". An etcdfence.Writer does: it writes only while all entries of the lock exist.
//
// There is no tree lock for reading. It is immutable, does no I/O when made, and may be copied and used by any number
// of goroutines.
type TreeMutex struct{ named named }

// NewTreeMutex names a path in the session's namespace: a name as CheckName takes it, of at most MaxSet segments. A bad
// path or a nil session is an error of the first call.
func NewTreeMutex(sess *session.Session, path string) *TreeMutex {
	host := lease.Open(sess)
	t := &TreeMutex{named{queues: queue.Set{queue.New(host, holdfast.KindTree, path)}}}
	for above, ok := parent(path); ok && t.named.first().Err() == nil; above, ok = parent(above) {
		t.named.queues = append(t.named.queues, queue.New(host, holdfast.KindTree, above).Above(path))
	}
	return t
}

// parent returns the path above, if there is one.
func parent(path string) (above string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], i > 0
}

// With is Mutex.With.
func (t *TreeMutex) With(o Options) *TreeMutex { return &TreeMutex{t.named.with(o)} }

// Name returns the path as it was given.
func (t *TreeMutex) Name() string { return t.named.first().Name() }

// Do is Mutex.Do.
func (t *TreeMutex) Do(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return do(ctx, t.named, fn, t.Lock)
}

// TryDo is Mutex.TryDo.
func (t *TreeMutex) TryDo(ctx context.Context, fn func(ctx context.Context, lk *Lock) error) error {
	return do(ctx, t.named, fn, t.TryLock)
}

// Lock acquires the lock as Mutex.Lock does, with the same errors. With a context of a Lock of a TreeMutex with the
// same first segment, while it is held, the error Is holdfast.ErrReentrant, also for siblings: a client that waits for
// the path above in between would make both wait for ever.
func (t *TreeMutex) Lock(ctx context.Context) (*Lock, error) { return t.lock(ctx, false) }

// TryLock acquires the lock if no lock that excludes it is held or waited for. Otherwise the error Is ErrLocked, and
// its Place says who holds one. Nothing was queued. Like that of a Mutex it waits behind a holder that died.
func (t *TreeMutex) TryLock(ctx context.Context) (*Lock, error) { return t.lock(ctx, true) }

func (t *TreeMutex) lock(ctx context.Context, try bool) (*Lock, error) {
	if n := len(t.named.queues); n > MaxSet {
		reason := fmt.Sprintf("has %d segments: etcd takes at most %d in one transaction", n, MaxSet)
		return nil, t.named.failed(0, &holdfast.NameError{Kind: string(holdfast.KindTree), Name: t.Name(), Reason: reason})
	}
	return lockOf(t.named.acquire(ctx, try))
}
