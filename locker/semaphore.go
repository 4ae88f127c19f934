package locker

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// MaxPermits is the largest limit of a Semaphore: 1,024.
const MaxPermits = layout.MaxPermits

// Semaphore is the name of a semaphore: up to n permits of it are held at a time, by all processes together. Only
// Resize changes it. It does no I/O when made, and may be copied and used by any number of goroutines.
//
// Permits are given first in, first out: a large request holds up small requests behind it. Each
// caller has an entry in etcd, also within one session.
//
// The limit stands in etcd, at NAMESPACE/sem/NAME/@limit, from the first acquisition on and for good: nothing of
// holdfast removes it. (When the semaphore is used no more, remove it by hand: etcdctl del KEY.) All programs must
// name the same limit; another one is a *holdfast.LimitError. Resize changes it.
//
// # Guaranteed
//
// A permit is given only if all held permits, by etcd's record, leave room for it in the limit of that revision, and no
// earlier caller waits. After the limit was lowered, those who hold go on, and no permit is
// given until enough of them have released. If a holder goes without a release, because its lease has ended or its
// entry was deleted, its permits stay taken until it has been told, as with a Mutex: for session.Options.LockDelay, or
// longer if its session lives. That holds for callers in the queue, and for newcomers.
//
// # Not guaranteed
//
// What is not guaranteed of a Mutex; see the package. A Permit has no fencing token: several hold, so none could tell
// who is late. A Set takes no permits, and there are no semaphores under foreign prefixes: etcd's own clients
// know none. To hold after a wait takes a write: while etcd's store is full, waiting callers fail, and their entries
// stay until there is room.
type Semaphore struct {
	latest *atomic.Pointer[queue.Semaphore] // with the limit that it and its copies name; Resize replaces it
	opts   Options
}

// sem returns the semaphore with the limit that s names now; nil for a Semaphore{}.
func (s *Semaphore) sem() *queue.Semaphore {
	if s.latest == nil {
		return nil
	}
	return s.latest.Load()
}

// NewSemaphore names a semaphore with n permits in the session's namespace, 1 to MaxPermits; see CheckName. A bad name,
// a bad n or a nil session is an error of the first call.
func NewSemaphore(sess *session.Session, name string, n int) *Semaphore {
	s := &Semaphore{latest: new(atomic.Pointer[queue.Semaphore])}
	s.latest.Store(queue.NewSemaphore(lease.Open(sess), name, n))
	return s
}

// With is Mutex.With. The copy follows Resize, too.
func (s *Semaphore) With(o Options) *Semaphore { return &Semaphore{s.latest, o} }

// Name returns the name as it was given.
func (s *Semaphore) Name() string { return s.sem().All().Name() }

// Do acquires that many permits, calls fn, and releases them when fn has returned, as Mutex.Do does, with the same
// errors.
func (s *Semaphore) Do(ctx context.Context, weight int, fn func(ctx context.Context, p *Permit) error) error {
	return do(ctx, s.named(weight), fn, func(ctx context.Context) (*Permit, error) { return s.Acquire(ctx, weight) })
}

// TryDo is Do with TryAcquire: it does not call fn if the error Is ErrLocked.
func (s *Semaphore) TryDo(ctx context.Context, weight int, fn func(ctx context.Context, p *Permit) error) error {
	return do(ctx, s.named(weight), fn, func(ctx context.Context) (*Permit, error) { return s.TryAcquire(ctx, weight) })
}

// Acquire acquires that many permits at once, 1 to n, as one Permit, and waits its turn. ctx bounds the acquisition
// only. When it ends, Acquire waits for its entry to be removed, for 250 ms at most.
//
// An error is a *view.AcquireError, as from Mutex.Lock. It wraps a *holdfast.LimitError if the weight is above the
// limit, also if that was lowered meanwhile, or if the limit in etcd is another than n when it queues. With a context
// of a Permit of the same semaphore, while it is held, the error Is holdfast.ErrReentrant: holders could wait for each
// other for ever. Ask for all at once.
func (s *Semaphore) Acquire(ctx context.Context, weight int) (*Permit, error) {
	return s.acquire(ctx, weight, false)
}

// TryAcquire acquires so many permits if they are free and no caller waits. It returns at once, except behind a dead
// holder: then it waits for the delay. Otherwise the error Is ErrLocked, and its Place says
// who holds the oldest permit. Callers that try at the same moment may refuse each other.
func (s *Semaphore) TryAcquire(ctx context.Context, weight int) (*Permit, error) {
	return s.acquire(ctx, weight, true)
}

func (s *Semaphore) acquire(ctx context.Context, weight int, try bool) (*Permit, error) {
	n := s.named(weight)
	h, err := n.acquire(ctx, try)
	if err != nil {
		return nil, err
	}
	return &Permit{single{h}, weight}, nil
}

func (s *Semaphore) named(weight int) named {
	return named{queues: queue.Set{s.sem().Permits(weight)}, opts: s.opts}
}

// Limit reads the limit in etcd; 0 if there is none yet, because the semaphore was never acquired.
func (s *Semaphore) Limit(ctx context.Context) (n int, err error) { return s.sem().Limit(ctx) }

// Resize changes the limit in etcd from that of s to n. Then s and its copies name n. If etcd has another limit,
// Resize changes nothing, and the error is a *holdfast.LimitError. If it is n already, that is no
// error.
//
// Waiting callers get permits as the new limit allows; requests for more than n fail. From now on, a Semaphore with the
// former limit, in any program, fails with a *holdfast.LimitError when it acquires.
func (s *Semaphore) Resize(ctx context.Context, n int) error {
	before := s.sem()
	if err := before.Resize(ctx, n); err != nil {
		return err
	}
	// Unless a later Resize was faster.
	s.latest.CompareAndSwap(before, queue.NewSemaphore(before.All().Host(), s.Name(), n))
	return nil
}
