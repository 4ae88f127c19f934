// Package family acquires locks of all kinds, for schedules that draw them: mutexes, readers, sets, tree locks,
// downgrades and permits, over overlapping names.
package family

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A Kind is a kind of locks.
type Kind int

// The kinds that Draw acquires.
const (
	Writer Kind = iota
	Reader
	Set
	Tree
	Downgradable
	Kinds // how many there are
)

// Held is what an acquisition has returned.
type Held interface {
	Key() string // of its first entry
	AcquiredRevision() int64
	Lease() clientv3.LeaseID
	Check() error
	Done() <-chan struct{}
}

// A Lock is a lock of any kind.
type Lock interface {
	Held
	Unlock(ctx context.Context) error
}

// Acquire acquires a lock.
type Acquire func(context.Context) (Lock, error)

// Hold returns a record of an acquisition that has just returned.
func Hold(who, process string, h Held, parts ...oracle.Part) *oracle.Hold {
	o := &oracle.Hold{Who: who, Process: process, Parts: parts, Key: h.Key(), Lease: h.Lease(),
		AcquiredAt: h.AcquiredRevision()}
	if h, ok := h.(fencing.Source); ok {
		o.Token = h.Token()
	}
	return o
}

// UpTo returns a random duration in [0, limit).
func UpTo(r *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(limit)))
}

// Draw returns how to acquire a lock of a kind, one time of four without waiting, and its queues.
func Draw(sess *session.Session, names []string, r *rand.Rand, kind Kind, who string) (Acquire, []oracle.Part) {
	o := locker.Options{Owner: who}
	name := names[r.IntN(len(names))]
	try := r.IntN(4) == 0
	switch kind {
	case Reader:
		rw := locker.NewRWMutex(sess, name).With(o)
		return Either(try, rw.TryRLock, rw.RLock), []oracle.Part{oracle.LockPart(name, true)}
	case Set:
		return drawSet(sess, names, r, o, try)
	case Tree:
		path := paths[r.IntN(len(paths))]
		tree := locker.NewTreeMutex(sess, path).With(o)
		return Either(try, tree.TryLock, tree.Lock), TreeParts(path)
	case Downgradable:
		rw := locker.NewRWMutex(sess, name).With(o)
		return Either(false, nil, rw.LockDowngradable),
			[]oracle.Part{oracle.LockPart(name, false), oracle.LockPart(name, true)}
	case Writer, Kinds:
	}
	return Mutex(locker.NewMutex(sess, name).With(o), try), []oracle.Part{oracle.LockPart(name, false)}
}

// Mutex returns Lock or TryLock of a mutex.
func Mutex(mu *locker.Mutex, try bool) Acquire { return Either(try, mu.TryLock, mu.Lock) }

// Permit returns Acquire or TryAcquire of a semaphore.
func Permit(sem *locker.Semaphore, weight int, try bool) Acquire {
	acquire := sem.Acquire
	if try {
		acquire = sem.TryAcquire
	}
	return Either(false, nil, func(ctx context.Context) (heldPermit, error) {
		p, err := acquire(ctx, weight)
		return heldPermit{p}, err
	})
}

// Either returns one of two ways.
func Either[L Lock](try bool, trying, waiting func(context.Context) (L, error)) Acquire {
	acquire := waiting
	if try {
		acquire = trying
	}
	return func(ctx context.Context) (Lock, error) { return orNot(acquire(ctx)) }
}

func drawSet(
	sess *session.Session, names []string, r *rand.Rand, o locker.Options, try bool,
) (Acquire, []oracle.Part) {
	var members []locker.Part
	var parts []oracle.Part
	for _, i := range r.Perm(len(names)) {
		read := r.IntN(2) == 0
		parts = append(parts, oracle.LockPart(names[i], read))
		if read {
			members = append(members, locker.Read(names[i]))
		} else {
			members = append(members, locker.Write(names[i]))
		}
		if len(members) == 2 && r.IntN(2) == 0 {
			break
		}
	}
	return OfSet(locker.NewSet(sess, members...).With(o), names, try), parts
}

// OfSet returns Lock or TryLock of a set of some of these names.
func OfSet(set *locker.Set, names []string, try bool) Acquire {
	lock := set.Lock
	if try {
		lock = set.TryLock
	}
	return Either(false, nil, func(ctx context.Context) (heldSet, error) {
		lk, err := lock(ctx)
		if err != nil {
			return heldSet{}, err
		}
		return newHeldSet(lk, names), nil
	})
}

// paths are a small tree.
var paths = []string{"t", "t/a", "t/a/x", "t/b"}

// TreeParts returns the parts of a tree lock.
func TreeParts(path string) []oracle.Part {
	var parts []oracle.Part
	for i := len(path); i > 0; i-- {
		if i == len(path) || path[i] == '/' {
			parts = append(parts, oracle.Part{Prefix: oracle.Keys + "tree/" + path[:i] + "/@/", Shared: i < len(path)})
		}
	}
	return parts
}

// heldSet is a SetLock with one of its keys.
type heldSet struct {
	*locker.SetLock
	key string
}

func newHeldSet(set *locker.SetLock, names []string) heldSet {
	for _, name := range names {
		if h, err := set.Holder(name); err == nil {
			return heldSet{set, h.(*locker.Lock).Key()}
		}
		if r, err := set.Reader(name); err == nil {
			return heldSet{set, r.(*locker.ReadLock).Key()}
		}
	}
	return heldSet{set, ""}
}

func (s heldSet) Key() string { return s.key }

// heldPermit is a Permit with the method that releases a lock.
type heldPermit struct{ *locker.Permit }

func (p heldPermit) Unlock(ctx context.Context) error { return p.Release(ctx) }

// Detachable is a Lock, a ReadLock or a Permit.
type Detachable interface {
	Detach(ctx context.Context, within time.Duration) (locker.Ticket, error)
}

// Attach attaches what was a Lock, a ReadLock or a Permit.
func Attach(
	ctx context.Context, sess *session.Session, was Detachable, ticket locker.Ticket, o locker.Options,
) (Lock, error) {
	switch was.(type) {
	case *locker.Lock:
		return orNot(locker.Attach(ctx, sess, ticket, o))
	case *locker.ReadLock:
		return orNot(locker.AttachRead(ctx, sess, ticket, o))
	default:
		permit, err := locker.AttachPermit(ctx, sess, ticket, o)
		return orNot(heldPermit{permit}, err)
	}
}

// orNot returns no Lock with an error, also none that wraps nil.
func orNot[L Lock](lk L, err error) (Lock, error) {
	if err != nil {
		return nil, err
	}
	return lk, nil
}

// MutexOnce acquires and releases a mutex. It returns what it could not do.
func MutexOnce(ctx context.Context, sess *session.Session, name string) (what string, err error) {
	lk, err := locker.NewMutex(sess, name).Lock(ctx)
	if err != nil {
		return "lock", err
	}
	return "unlock", lk.Unlock(ctx)
}

// Once acquires and releases one lock of each kind. It returns what it could not do.
func Once(ctx context.Context, sess *session.Session, name string) (what string, err error) {
	rw := locker.NewRWMutex(sess, name)
	if err := rw.RDo(ctx, func(context.Context, *locker.ReadLock) error { return nil }); err != nil {
		return "read", err
	}
	both := locker.NewSet(sess, locker.Write(name), locker.Read("n0"+name))
	if err := both.Do(ctx, func(context.Context, *locker.SetLock) error { return nil }); err != nil {
		return "lock with another", err
	}
	for _, path := range paths {
		tree := locker.NewTreeMutex(sess, path)
		if err := tree.Do(ctx, func(context.Context, *locker.Lock) error { return nil }); err != nil {
			return "lock the tree below", err
		}
	}
	return MutexOnce(ctx, sess, name)
}
