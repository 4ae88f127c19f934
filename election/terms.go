package election

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// terms are a session's own terms of one election: those that are held, and those
// that have ended while their function still runs. They keep two functions of one
// election from running at once.
type terms struct {
	all    *sessionTerms
	prefix string // of the election's entries
	host   lease.Env
}

// sessionTerms are the terms of all elections of a session.
type sessionTerms struct {
	mu      sync.Mutex // protects what follows
	states  map[string]map[*Term]*termState
	turns   map[string]*turn
	changed chan struct{} // closed and replaced when a function has returned, or a turn changes
}

// termState describes a term that is held, or whose function still runs.
type termState struct {
	scoped  bool // the term belongs to a function of Run or RunWhileLeader
	running bool // the function runs
}

type termsKey struct{}

func termsOf(e *Election) terms {
	host := e.queue.Host()
	all := host.Extension(termsKey{}, func() any {
		return &sessionTerms{
			states: make(map[string]map[*Term]*termState), turns: make(map[string]*turn), changed: make(chan struct{}),
		}
	}).(*sessionTerms)
	return terms{all: all, prefix: e.queue.Layout().Entries, host: host}
}

// add records a term that was won, until it ends.
func (ts terms) add(t *Term) {
	ts.set(t, termState{})
	held, cancel := t.hold.Context(context.Background(), false)
	context.AfterFunc(held, func() {
		cancel()
		ts.ended(t)
	})
}

func (ts terms) set(t *Term, s termState) {
	ts.all.mu.Lock()
	defer ts.all.mu.Unlock()
	if ts.all.states[ts.prefix] == nil {
		ts.all.states[ts.prefix] = make(map[*Term]*termState)
	}
	ts.all.states[ts.prefix][t] = &s
}

// ended forgets a term that has ended, unless its function still runs; leave does
// so then.
func (ts terms) ended(t *Term) {
	ts.all.mu.Lock()
	defer ts.all.mu.Unlock()
	if s := ts.all.states[ts.prefix][t]; s != nil && !s.running {
		ts.removeLocked(t)
	}
}

func (ts terms) removeLocked(t *Term) {
	delete(ts.all.states[ts.prefix], t)
	if len(ts.all.states[ts.prefix]) == 0 {
		delete(ts.all.states, ts.prefix)
	}
}

// enter marks that a function is about to run in t. It reports false, and the
// function must not run, if t has ended or the function of an ended term runs.
//
// The mark comes before the look. If t is lost after the look, a later term of this
// session finds the mark; if t was lost before, the look finds t itself.
func (ts terms) enter(t *Term) bool {
	ts.set(t, termState{scoped: true, running: true})
	if straggler, _ := ts.straggler(); straggler != nil {
		ts.leave(t)
		return false
	}
	return true
}

// leave records that no function runs in t.
func (ts terms) leave(t *Term) {
	ts.all.mu.Lock()
	defer ts.all.mu.Unlock()
	ts.all.states[ts.prefix][t].running = false
	select {
	case <-t.hold.Done():
		ts.removeLocked(t)
	default: // ended will
	}
	ts.all.changedLocked()
}

func (s *sessionTerms) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// scoped reports whether t belongs to a function of Run or RunWhileLeader.
func (ts terms) scoped(t *Term) bool {
	ts.all.mu.Lock()
	defer ts.all.mu.Unlock()
	s := ts.all.states[ts.prefix][t]
	return s != nil && s.scoped
}

// list returns a copy of the states, to be judged without the lock, and a channel
// that is closed when a function has returned.
func (ts terms) list() (map[*Term]termState, <-chan struct{}) {
	ts.all.mu.Lock()
	defer ts.all.mu.Unlock()
	states := make(map[*Term]termState, len(ts.all.states[ts.prefix]))
	for t, s := range ts.all.states[ts.prefix] {
		states[t] = *s
	}
	return states, ts.all.changed
}

// straggler returns a term that has ended while its function still runs, or nil,
// and a channel that is closed when a function has returned.
//
// A later term of the same session is won only after Check reports the end of the
// earlier one, so the winner always finds its straggler here.
func (ts terms) straggler() (*Term, <-chan struct{}) {
	states, changed := ts.list()
	for t, s := range states {
		if s.running && !t.hold.Live() {
			return t, changed
		}
	}
	return nil, changed
}

// waitForStragglers waits until no function of an ended term runs.
func (ts terms) waitForStragglers(ctx context.Context) error {
	for {
		t, changed := ts.straggler()
		if t == nil {
			return nil
		}
		for h := range fencing.Holders(ctx) {
			if h == fencing.Holder(t) {
				return holdfast.ErrReentrant // it would wait for itself
			}
		}
		select {
		case <-changed:
		case <-ts.host.Context().Done():
			return holdfast.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%w: %w (token %v)", backoff.ContextErr(ctx), ErrNotDrained, t.Token())
		}
	}
}
