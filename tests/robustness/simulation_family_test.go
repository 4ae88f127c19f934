package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
)

// paths are a small tree.
var paths = []string{"t", "t/a", "t/a/x", "t/b"}

// drawFamily draws how often each kind of lock is acquired. In half of the schedules the network loses and delays
// nothing, since a holder that a fault keeps from being told proves nothing.
func (s *simulation) drawFamily(r *rand.Rand) (names, goroutines int) {
	alone := r.IntN(4) == 0 // readers, and mutexes in lines in memory
	if alone || r.IntN(2) == 0 {
		s.profile.calm, s.profile.every = true, time.Second
		s.profile.lose, s.profile.slow, s.profile.late = 0, 0, 0
		s.profile.latency = min(s.profile.latency, 50*time.Millisecond)
	}
	for i := range s.profile.kinds {
		s.profile.kinds[i] = []int{0, 0, 1, 4}[r.IntN(4)]
	}
	s.profile.kinds[r.IntN(len(s.profile.kinds))] = 4
	names, goroutines = 1+r.IntN(3), 2+r.IntN(2)
	if alone {
		s.profile.kinds, names, goroutines = [allKinds]int{writeKind: 1, readKind: 1}, 1, 4
	}
	if !alone && r.IntN(5) == 0 {
		goroutines = 8 // so that Txns are batched
	}
	return names, goroutines
}

// The kinds of locks that useFamily acquires.
const (
	writeKind = iota
	readKind
	setKind
	treeKind
	downgradeKind
	allKinds
)

// drawLock returns how to acquire a lock of the family: a writer, a reader, a set, a tree lock or a writer that can
// become a reader, one time of four without waiting.
func (s *simulation) drawLock(
	c *simClient, r *rand.Rand, kind int, who string,
) (acquire func(context.Context) (unlocker, error), parts []part) {
	sess, o := c.session(), locker.Options{Owner: who}
	name := s.names[r.IntN(len(s.names))]
	try := r.IntN(4) == 0
	switch kind {
	case readKind:
		rw := locker.NewRWMutex(sess, name).With(o)
		return func(ctx context.Context) (unlocker, error) {
			if try {
				return rw.TryRLock(ctx)
			}
			return rw.RLock(ctx)
		}, []part{lockPart(name, true)}
	case setKind:
		var members []locker.Member
		for _, i := range r.Perm(len(s.names)) {
			read := r.IntN(2) == 0
			parts = append(parts, lockPart(s.names[i], read))
			if read {
				members = append(members, locker.R(s.names[i]))
			} else {
				members = append(members, locker.W(s.names[i]))
			}
			if len(members) == 2 && r.IntN(2) == 0 {
				break
			}
		}
		set := locker.NewSet(sess, members...).With(o)
		return func(ctx context.Context) (unlocker, error) {
			lock := set.Lock
			if try {
				lock = set.TryLock
			}
			lk, err := lock(ctx)
			if err != nil {
				return nil, err
			}
			return newHeldSet(lk, s.names), nil
		}, parts
	case treeKind:
		path := paths[r.IntN(len(paths))]
		tree := locker.NewTreeMutex(sess, path).With(o)
		return func(ctx context.Context) (unlocker, error) {
			if try {
				return tree.TryLock(ctx)
			}
			return tree.Lock(ctx)
		}, treeParts(path)
	case downgradeKind:
		rw := locker.NewRWMutex(sess, name).With(o)
		return func(ctx context.Context) (unlocker, error) { return rw.LockDowngradable(ctx) },
			[]part{lockPart(name, false), lockPart(name, true)}
	}
	mu := locker.NewMutex(sess, name).With(o)
	return lockWith(mu, try), []part{lockPart(name, false)}
}

// treeParts returns the parts of a tree lock.
func treeParts(path string) []part {
	var parts []part
	for i := len(path); i > 0; i-- {
		if i == len(path) || path[i] == '/' {
			parts = append(parts, part{prefix: simEntries + "tree/" + path[:i] + "/@/", reads: i < len(path)})
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
		if lk, ok := set.Holder(name).(*locker.Lock); ok && lk != nil {
			return heldSet{set, lk.Key()}
		}
		if lk, ok := set.Reader(name).(*locker.ReadLock); ok && lk != nil {
			return heldSet{set, lk.Key()}
		}
	}
	return heldSet{set, ""}
}

func (s heldSet) Key() string { return s.key }

// useFamily is one goroutine of a process, as useMutexes is, that acquires locks of all kinds.
func useFamily(s *simulation, c *simClient, i int) {
	r := s.source(1000 + 100*uint64(c.id) + uint64(i))
	time.Sleep(upTo(r, 100*time.Millisecond)) // so that goroutines do not start at the same instant
	var all []int
	for kind, n := range s.profile.kinds {
		for range n {
			all = append(all, kind)
		}
	}
	for call := 0; !s.stop.Load(); call++ {
		kind := all[r.IntN(len(all))]
		who := fmt.Sprintf("session %d goroutine %d call %d", c.id, i, call)
		acquire, parts := s.drawLock(c, r, kind, who)
		s.useLock(c, who, parts, s.drawBound(r), drawHold(r), acquire, r)
		time.Sleep(upTo(r, 100*time.Millisecond) + time.Microsecond)
	}
}

// downgrade makes a writer a reader, which holds by an entry that has stood since before.
func (s *simulation) downgrade(h *held, lk *locker.DowngradableLock, r *rand.Rand) (*held, unlocker) {
	bound := upTo(r, 2*time.Second) + time.Nanosecond
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	start := s.now()
	rd, err := lk.Downgrade(ctx)
	s.log(fmt.Sprintf("%s: downgraded, %v", h.who, err))
	s.checkDuration(h.who+" downgrading", start, bound)
	if err != nil {
		if !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrReleased) {
			s.fail("%s: Downgrade returned %v", h.who, err)
		}
		return h, lk
	}
	reader := s.oracle.grant(s, h.client, h.who, rd, part{prefix: h.parts[0].prefix, reads: true})
	if reader.rev != h.rev {
		s.fail("%s: held alone by entries of revision %d, and downgraded to one of revision %d", h.who, h.rev, reader.rev)
	}
	s.oracle.addDowngrade()
	return reader, rd
}

// lockAnyOnce acquires and releases one lock of each kind.
func lockAnyOnce(ctx context.Context, c *simClient, name string) (string, error) {
	rw := locker.NewRWMutex(c.session(), name)
	if err := rw.RDo(ctx, func(context.Context, *locker.ReadLock) error { return nil }); err != nil {
		return "read", err
	}
	both := locker.NewSet(c.session(), locker.W(name), locker.R("n0"+name))
	if err := both.Do(ctx, func(context.Context, *locker.SetLock) error { return nil }); err != nil {
		return "lock with another", err
	}
	for _, path := range paths {
		tree := locker.NewTreeMutex(c.session(), path)
		if err := tree.Do(ctx, func(context.Context, *locker.Lock) error { return nil }); err != nil {
			return "lock the tree below", err
		}
	}
	return lockOnce(ctx, c, name)
}
