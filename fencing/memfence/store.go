package memfence

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Store is a [fencing.Store]. It is safe for concurrent use.
type Store struct {
	maxMarks int

	mu    sync.Mutex       // protects marks and users; not held during an effect
	marks map[string]*mark // by resource
}

// mark is the mark of one resource.
type mark struct {
	// turn is a semaphore of one: what holds it has the resource exclusively, and
	// may access claim.
	turn  chan struct{}
	claim fencing.Claim // the mark and the lock it is of; zero if there is none

	users int // goroutines that hold turn or wait for it; protected by Store.mu
}

var (
	_ fencing.Store  = (*Store)(nil)
	_ fencing.Filter = (*Store)(nil)
)

// Options configure a [Store]. The zero value is the default.
type Options struct {
	// MaxMarks is how many resources may have a mark; more are refused with fencing.ErrFull.
	// A mark takes about 300 bytes and its names. Default 100,000. Negative: no limit.
	MaxMarks int
}

const defaultMaxMarks = 100_000

// New returns an empty store.
func New(o Options) *Store {
	s := &Store{maxMarks: defaultMaxMarks, marks: make(map[string]*mark)}
	if o.MaxMarks != 0 {
		s.maxMarks = o.MaxMarks
	}
	return s
}

// Do implements fencing.Store. Effects on one resource run one after the other; the wait ends with ctx, and
// effect must respect it. A call for the same resource from within effect waits for the end of effect, so
// until ctx ends. The mark stays raised if effect fails or panics.
func (s *Store) Do(
	ctx context.Context, resource string, c fencing.Claim, effect func(ctx context.Context) error,
) error {
	if err := fence.CheckUse(ctx, resource, c); err != nil {
		return err
	}
	m, err := s.acquire(ctx, resource)
	if err != nil {
		return err
	}
	defer s.release(resource, m)
	if err := c.CheckMark(resource, m.claim); err != nil {
		return err
	}
	m.claim = c
	return effect(ctx)
}

// Admit implements fencing.Filter. It is Do without an effect.
func (s *Store) Admit(ctx context.Context, resource string, c fencing.Claim) error {
	return s.Do(ctx, resource, c, func(context.Context) error { return nil })
}

// Reset deletes the mark of a resource, if it has one, and records that in a (nil: the default
// logger). Use it for a resource that no longer exists, or gets another lock, or has a mark no token
// can reach. No stale holder may be left: the next token is admitted, whatever it is. The error is a
// *fencing.ClaimError for the resource, or ctx's.
func (s *Store) Reset(ctx context.Context, resource string, a audit.Auditor) error {
	if err := fence.CheckReset(ctx, resource); err != nil {
		return err
	}
	s.mu.Lock()
	_, known := s.marks[resource]
	s.mu.Unlock()
	if !known {
		return nil
	}
	m, err := s.acquire(ctx, resource)
	if err != nil {
		return err
	}
	was := m.claim
	m.claim = fencing.Claim{}
	s.release(resource, m)
	if was.Token != 0 {
		audit.Tell(ctx, a, audit.Record{Event: audit.Reset, Name: was.Name, Resource: resource, Mark: was.Token})
	}
	return nil
}

// Len returns how many resources have a mark or are in use.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.marks)
}

// acquire waits until the caller has the resource exclusively.
func (s *Store) acquire(ctx context.Context, resource string) (*mark, error) {
	if err := retry.ContextErr(ctx); err != nil {
		return nil, fencing.NotDone(err)
	}
	s.mu.Lock()
	m := s.marks[resource]
	if m == nil {
		if s.maxMarks >= 0 && len(s.marks) >= s.maxMarks {
			s.mu.Unlock()
			return nil, fmt.Errorf("memfence: no room for the mark of %s: there are %d already, the limit is "+
				"Options.MaxMarks: call Reset for resources that no longer exist, or raise the limit: %w",
				names.Quote(resource), s.maxMarks, fencing.ErrFull)
		}
		m = &mark{turn: make(chan struct{}, 1)}
		s.marks[resource] = m
	}
	m.users++ // keeps m in the map
	s.mu.Unlock()
	select {
	case m.turn <- struct{}{}:
		return m, nil
	case <-ctx.Done():
		s.giveUp(resource, m)
		return nil, fencing.NotDone(retry.ContextErr(ctx))
	}
}

func (s *Store) release(resource string, m *mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropUserLocked(resource, m, m.claim.Token == 0)
	<-m.turn // does not block: the caller's own value
}

// giveUp ends a wait. The caller does not hold turn, so it may read claim only as
// the last user, when no other goroutine can be inside.
func (s *Store) giveUp(resource string, m *mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropUserLocked(resource, m, m.users == 1 && m.claim.Token == 0)
}

// dropUserLocked removes m from the map with its last user if it holds no mark.
func (s *Store) dropUserLocked(resource string, m *mark, empty bool) {
	m.users--
	if m.users == 0 && empty {
		delete(s.marks, resource)
	}
}
