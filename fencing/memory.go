package fencing

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/backoff"
)

// DefaultMemoryMarks is how many resources a [MemoryStore] remembers unless told
// otherwise. Each costs about 300 bytes besides its name and its lock's.
const DefaultMemoryMarks = 100_000

// MemoryStore is a [Store] in the memory of one process. It holds the resource
// exclusively from the comparison to the end of the effect, for all who go
// through this MemoryStore; so it guards a resource that is written through this
// process and nobody else.
//
// It forgets all marks when the process ends. What outlives the process (a file,
// a table) needs marks that do too, or else the first to come after a restart
// may be a stale holder.
//
// It is also a [Filter], which is the same with no effect.
type MemoryStore struct {
	most int

	mu    sync.Mutex             // protects what follows; never held during an effect
	marks map[string]*memoryMark // by resource
}

// memoryMark is one resource.
type memoryMark struct {
	// turn holds one value while somebody has the resource to himself. It
	// protects claim.
	turn  chan struct{}
	claim Claim // the mark, and the name under which it was set; zero: none yet

	users int // who has it or waits for it; protected by MemoryStore.mu
}

var (
	_ Store  = (*MemoryStore)(nil)
	_ Filter = (*MemoryStore)(nil)
)

// NewMemoryStore returns an empty store for at most most resources; 0 stands for
// [DefaultMemoryMarks], and a negative number panics. A resource beyond that is
// refused with [ErrFull] until another is dropped with Reset: no mark is dropped
// to make room.
func NewMemoryStore(most int) *MemoryStore {
	if most < 0 {
		panic("fencing: NewMemoryStore with a negative number of resources")
	}
	if most == 0 {
		most = DefaultMemoryMarks
	}
	return &MemoryStore{most: most, marks: make(map[string]*memoryMark)}
}

// Do implements [Store]. Effects on one resource run one after the other, those
// on different ones at the same time; who waits for a turn is compared when it
// has come, and gives up when ctx ends, with ctx's error. An effect that does
// not return keeps its resource, so it should respect its context; one that
// calls Do for its own resource waits for itself.
//
// The mark stays raised when effect fails or panics: that a newer holder exists
// is true all the same.
func (s *MemoryStore) Do(ctx context.Context, resource string, c Claim, effect func(ctx context.Context) error) error {
	if err := checkUse(resource, c); err != nil {
		return err
	}
	m, err := s.take(ctx, resource)
	if err != nil {
		return err
	}
	defer s.give(resource, m)
	if err := c.CheckMark(resource, m.claim); err != nil {
		return err
	}
	m.claim = c
	return effect(ctx)
}

// Admit implements [Filter]. It waits for an effect on the resource to end.
func (s *MemoryStore) Admit(ctx context.Context, resource string, c Claim) error {
	return s.Do(ctx, resource, c, func(context.Context) error { return nil })
}

// Reset drops the mark of a resource once no effect has it, and tells a of that
// (nil: slog.Default()): for a resource that exists no more, that another lock is
// to guard from now on, or whose mark no token reaches. From then on any token
// passes, so make sure first that no stale holder is left. Without a mark it does
// nothing. The error is a *[ClaimError] for a resource that cannot be one, or
// ctx's.
func (s *MemoryStore) Reset(ctx context.Context, resource string, a Auditor) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	s.mu.Lock()
	_, known := s.marks[resource]
	s.mu.Unlock()
	if !known {
		return nil
	}
	m, err := s.take(ctx, resource)
	if err != nil {
		return err
	}
	was := m.claim
	m.claim = Claim{}
	s.give(resource, m)
	if was.Token != 0 {
		AuditReset(ctx, a, resource, was, nil)
	}
	return nil
}

// Len is the number of resources that are remembered, or in use.
func (s *MemoryStore) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.marks)
}

// take waits until the caller has the resource to himself.
func (s *MemoryStore) take(ctx context.Context, resource string) (*memoryMark, error) {
	if err := backoff.ContextErr(ctx); err != nil {
		return nil, NotDone(err)
	}
	s.mu.Lock()
	m := s.marks[resource]
	if m == nil {
		if len(s.marks) >= s.most {
			s.mu.Unlock()
			return nil, errFull(resource, int64(s.most), "NewMemoryStore")
		}
		m = &memoryMark{turn: make(chan struct{}, 1)}
		s.marks[resource] = m
	}
	m.users++ // from here on m stays in the map
	s.mu.Unlock()
	select {
	case m.turn <- struct{}{}:
		return m, nil
	case <-ctx.Done():
		s.leave(resource, m)
		return nil, NotDone(backoff.ContextErr(ctx))
	}
}

// give ends the caller's turn.
func (s *MemoryStore) give(resource string, m *memoryMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(resource, m, m.claim.Token == 0)
	<-m.turn // never blocks: the caller's own value
}

// leave ends a wait. Whether there is a mark is for those to say who have the
// resource: nobody has it, and it never had one, if the caller is the last.
func (s *MemoryStore) leave(resource string, m *memoryMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(resource, m, m.users == 1 && m.claim.Token == 0)
}

func (s *MemoryStore) leaveLocked(resource string, m *memoryMark, empty bool) {
	m.users--
	if m.users == 0 && empty {
		delete(s.marks, resource)
	}
}
