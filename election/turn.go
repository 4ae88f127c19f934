package election

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// turn lets the calls of Run and RunWhileLeader on one session and election campaign and lead one at a time. A call has
// the turn from before it queues until its function has returned:
//
//	0 s   Run A leads: its function begins
//	5 s   the session's lease is lost; the function of A goes on
//	6 s   Run B waits for the turn, and does not queue: it would keep candidates of other processes waiting
//	9 s   the function of A returns: B queues
//
// So functions of one session and election never overlap. Campaign calls no function, and takes no turn.
type turn struct {
	all     *turns
	entries string // the prefix of the election's entries

	calls int                  // have the turn, or wait for it; protected by turns.mu
	taken chan struct{}        // full while a call has the turn
	users atomic.Int32         // need the turn: the call, and its function
	term  atomic.Pointer[Term] // whose function runs; nil if none does
}

// turns are the turns of a session, by the prefix of the election's entries.
type turns struct {
	mu sync.Mutex // protects of, and the calls of each
	of map[string]*turn
}

type turnsKey struct{}

// turns returns the turns of the election's session.
func (e *Election) turns() *turns {
	return e.queue.Host().Extension(turnsKey{}, func() any { return &turns{of: make(map[string]*turn)} }).(*turns)
}

// takeTurn waits until this call has the turn. The caller calls done when it needs the turn no longer.
func (e *Election) takeTurn(ctx context.Context) (*turn, error) {
	t := e.turns().join(e.queue.Layout().Entries)
	err := t.await(ctx, e.queue.Host().Context)
	if err != nil {
		t.leave()
		return nil, err
	}
	t.users.Store(1)
	return t, nil
}

func (t *turn) await(ctx, session context.Context) error {
	if running := t.term.Load(); running != nil {
		for h := range fencing.Holds(ctx) {
			if h == fencing.Hold(running) {
				return holdfast.ErrReentrant // the function would wait for its own return
			}
		}
	}
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-session.Done():
		return holdfast.ErrClosed
	case <-ctx.Done():
	}
	if running := t.term.Load(); running != nil && !running.hold.Live() {
		return fmt.Errorf("%w: %w (token %v)", retry.ContextErr(ctx), ErrNotDrained, running.Token())
	}
	return fmt.Errorf("%w: another call of this session campaigns or leads", retry.ContextErr(ctx))
}

// done ends one use of the turn. The last use gives the turn to the next call.
func (t *turn) done() {
	if t.users.Add(-1) == 0 {
		<-t.taken
		t.leave()
	}
}

// keep keeps the turn for that long, without a call.
func (t *turn) keep(rest time.Duration) {
	if rest > 0 {
		t.users.Add(1)
		time.AfterFunc(rest, t.done)
	}
}

func (all *turns) join(entries string) *turn {
	all.mu.Lock()
	defer all.mu.Unlock()
	t := all.of[entries]
	if t == nil {
		t = &turn{all: all, entries: entries, taken: make(chan struct{}, 1)}
		all.of[entries] = t
	}
	t.calls++
	return t
}

// leave forgets a turn with no calls: a session may lead elections of any number of names.
func (t *turn) leave() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.calls--; t.calls == 0 {
		delete(t.all.of, t.entries)
	}
}
