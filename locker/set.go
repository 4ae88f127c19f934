package locker

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// MaxSet is the largest number of names in a Set, 42: etcd limits the comparisons of one transaction.
const MaxSet = queue.MaxSet

// Set is the names of several locks, to be acquired together: all of them, or none. It is immutable, does no I/O when
// made, and may be copied and used by any number of goroutines.
//
//	both := locker.NewSet(sess, locker.Write("account/7"), locker.Read("rates"))
//	err := both.Do(ctx, func(ctx context.Context, set *locker.SetLock) error { … })
//
// Each name is the Mutex or RWMutex of that name, and its queue is the same. Overlapping Sets do not deadlock, in
// whatever order they name their locks: one transaction queues a caller in all queues, at one revision of etcd, so any
// two callers are in the same order in all queues. (Two Sets, the second locked within the first, can deadlock, as two
// mutexes can.)
//
// While a caller waits for one name of the set, it keeps its place in the queues of the others. Callers behind it there
// wait, too. If a session ahead of it has lost its lease meanwhile, it may wait for session.Options.LockDelay as well.
// If one of its entries is deleted by hand, or Kick asks it to let go, it loses all of its places and queues again at
// the back: when its turn comes in the queue it waits in, or within 30 seconds. Permits of a Semaphore and prefixes of
// etcd's own locks cannot be parts.
type Set struct{ named named }

// Part is a name of a Set: see Write and Read.
type Part struct {
	name string
	read bool
}

// Write names a lock for the Set to acquire alone, as Mutex.Lock does.
func Write(name string) Part { return Part{name: name} }

// Read names a lock for the Set to acquire for reading, as RWMutex.RLock does.
func Read(name string) Part { return Part{name: name, read: true} }

// NewSet names 1 to MaxSet locks in the session's namespace, each once. A bad name, a name twice, too many
// names or none, and a nil session are errors of the first call.
func NewSet(sess *session.Session, parts ...Part) *Set {
	s := new(Set)
	for _, p := range parts {
		q := queue.New(lease.Open(sess), holdfast.KindLock, p.name)
		if p.read {
			q = q.Readers()
		}
		s.named.queues = append(s.named.queues, q)
	}
	s.named.text = strings.Join(s.Names(), ", ")
	return s
}

// With is Mutex.With.
func (s *Set) With(o Options) *Set { return &Set{s.named.with(o)} }

// Names returns the names of the set's parts, in the order of NewSet's arguments. The slice is the caller's.
func (s *Set) Names() []string {
	all := make([]string, len(s.named.queues))
	for i, q := range s.named.queues {
		all[i] = q.Name()
	}
	return all
}

// Do is Mutex.Do for all locks of the set.
func (s *Set) Do(ctx context.Context, fn func(ctx context.Context, set *SetLock) error) error {
	return do(ctx, s.named, fn, s.Lock)
}

// TryDo is Do with TryLock: it does not call fn if the error Is ErrLocked.
func (s *Set) TryDo(ctx context.Context, fn func(ctx context.Context, set *SetLock) error) error {
	return do(ctx, s.named, fn, s.TryLock)
}

// Lock acquires all locks of the set and waits its turn in each queue, as Mutex.Lock does, with the same errors. When
// the session loses its lease, or one of the entries is deleted, the call queues again for all of them. With a context
// of a Lock, ReadLock or SetLock of one of the names, while it is held, the error Is holdfast.ErrReentrant.
func (s *Set) Lock(ctx context.Context) (*SetLock, error) { return s.lock(ctx, false) }

// TryLock acquires all locks of the set if none is held or waited for by one that excludes it. Otherwise the error Is
// ErrLocked, and its Place says who holds one of them. Nothing was queued. Like that of a Mutex it waits behind a
// holder that died.
func (s *Set) TryLock(ctx context.Context) (*SetLock, error) { return s.lock(ctx, true) }

func (s *Set) lock(ctx context.Context, try bool) (*SetLock, error) {
	if err := s.check(); err != nil {
		return nil, s.named.failed(0, err)
	}
	h, err := s.named.acquire(ctx, try)
	if err != nil {
		return nil, err
	}
	set := &SetLock{handle: h}
	for _, each := range h.hold.Together() {
		if each.Queue().Reader {
			set.readers = append(set.readers, s.named.readLock(each))
		} else {
			set.writers = append(set.writers, &Lock{single{s.named.handle(each, nil)}})
		}
	}
	if len(set.writers) == 1 { // lastrun.Record finds the name behind the hook: it must be the one of the token
		set.hook = set.writers[0].hook
	}
	return set, nil
}

// check returns what is wrong with the parts as a whole, or nil.
func (s *Set) check() error {
	bad := func(reason string) error { return &holdfast.ArgumentError{Argument: "parts", Reason: reason} }
	switch {
	case len(s.named.queues) == 0:
		return bad("are none: name at least one lock")
	case len(s.named.queues) > MaxSet:
		return bad(fmt.Sprintf("are %d: etcd takes at most %d in one transaction", len(s.named.queues), MaxSet))
	}
	seen := make(map[string]bool)
	for _, name := range s.Names() {
		if seen[name] {
			return bad(fmt.Sprintf("name the lock %.128q twice", name))
		}
		seen[name] = true
	}
	return nil
}

// SetLock is one acquisition of a Set. What ends the hold of one of its locks ends them all, with the same cause: the
// loss of the lease, an administrator who kicks or removes one holder, a deleted entry. It is safe for
// concurrent use.
//
// A token belongs to one name. With one Write the SetLock is a fencing.Holder of that name, whatever it reads. With
// several, or none, the first call of a guard, an etcdfence.Writer or lastrun.Record returns holdfast.ErrNoToken: use
// Holder or Reader.
type SetLock struct {
	handle  // of the first name
	writers []*Lock
	readers []*ReadLock
}

var _ fencing.Holder = (*SetLock)(nil)

// Name returns the name of the only Write of the set, and "" if it has several or none.
func (s *SetLock) Name() string {
	if len(s.writers) != 1 {
		return ""
	}
	return s.writers[0].Name()
}

// Token returns the fencing token of the only Write of the set, and 0 if it has several or none.
func (s *SetLock) Token() holdfast.Token {
	if len(s.writers) != 1 {
		return 0
	}
	return s.writers[0].Token()
}

// all returns the locks: first those that are held alone.
func (s *SetLock) all() (all []*single) {
	for _, lk := range s.writers {
		all = append(all, &lk.single)
	}
	for _, lk := range s.readers {
		all = append(all, &lk.single)
	}
	return all
}

// Names returns the names of the locks: first those that are held alone.
func (s *SetLock) Names() []string { return each(s.all(), (*single).Name) }

// Keys returns the keys of the entries in etcd, in the order of Names.
func (s *SetLock) Keys() []string { return each(s.all(), (*single).Key) }

// String names the locks, with their token and their lease.
func (s *SetLock) String() string { return strings.Join(each(s.all(), (*single).String), "; ") }

func each(all []*single, text func(*single) string) (texts []string) {
	for _, lk := range all {
		texts = append(texts, text(lk))
	}
	return texts
}

// Holder returns the lock of a name in the set of writers, with that name's token, for fencing and its guards. For
// any other name the error is a *holdfast.ArgumentError. The tokens of a set are equal: each is compared with those of
// its own name only.
func (s *SetLock) Holder(name string) (fencing.Holder, error) {
	for _, lk := range s.writers {
		if lk.Name() == name {
			return lk, nil
		}
	}
	return nil, s.notHeld(name, "alone")
}

// Reader returns the lock of a name in the set of readers, for etcdfence.NewWriter. For any other name the
// error is a *holdfast.ArgumentError.
func (s *SetLock) Reader(name string) (fencing.Hold, error) {
	for _, lk := range s.readers {
		if lk.Name() == name {
			return lk, nil
		}
	}
	return nil, s.notHeld(name, "for reading")
}

// notHeld is the error for a name that the set does not hold in that way.
func (s *SetLock) notHeld(name, how string) error {
	held := each(s.all(), func(lk *single) string {
		if lk.hold.Token() == 0 {
			return names.Quote(lk.Name()) + " for reading"
		}
		return names.Quote(lk.Name()) + " alone"
	})
	const most = 9
	if len(held) > most {
		held = append(held[:most], "…")
	}
	return &holdfast.ArgumentError{
		Argument: "name", Reason: fmt.Sprintf("%s is none that the set holds %s; it holds %s", names.Quote(name), how,
			strings.Join(held, ", ")),
	}
}

// WithContext returns a child of ctx. It is canceled as that of [Lock.WithContext]. If the set has one writer, it
// carries that lock for fencing.FromContext; with several it carries none: use Holder.
func (s *SetLock) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	for _, lk := range s.readers {
		ctx = fencing.NewContext(ctx, lk)
	}
	for _, lk := range s.writers {
		ctx = fencing.NewContext(ctx, lk)
	}
	if len(s.writers) > 1 {
		ctx = fencing.NewContext(ctx, nil)
	}
	return s.context(ctx)
}

// Unlock releases all locks of the set, in one request, as [Lock.Unlock] does, with the same errors.
func (s *SetLock) Unlock(ctx context.Context) error { return s.release(ctx) }
