package hold

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/queue"
)

// What tests of package hold_test see of the inside.

const (
	AbandonWait = abandonWait
	MaxHeld     = maxHeld
)

// Contexts is the number of contexts that the hold would cancel.
func (l *life) Contexts() int { return len(l.contexts) }

// Polled is the number of holds that the poller knows on the lease of the hold.
func (h *Hold) Polled() int { return len(h.poll.roster.on(h.grant.Lease, false)) }

// NoteEntry is called by the poller with what it has read.
var NoteEntry = (*Hold).noteEntry

// Overrun tells that the work goes on, once that was seen.
var Overrun = (*Work).overrun

// StopWith ends the hold and leaves its entry.
func (l *life) StopWith(cause error) { l.stop(cause) }

// OnStop has the end of the hold call f, among the ends of its contexts.
func (l *life) OnStop(f func()) {
	cancel := context.CancelCauseFunc(func(error) { f() })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contexts == nil {
		l.contexts = make(map[*context.CancelCauseFunc]struct{})
	}
	l.contexts[&cancel] = struct{}{}
}

// NoteModified is what NoteEntry does last.
var NoteModified = (*Hold).noteModified

// GoOn is the hold that Downgrade returns.
func (h *Hold) GoOn() *Hold { return h.goOn() }

// Remove removes the entry as the end of a hold does.
func (h *Hold) Remove() { h.removal.inBackground() }

// BeforeRevoke is what the session calls before it revokes the lease of the hold.
func (h *Hold) BeforeRevoke(ctx context.Context) { h.poll.beforeRevoke(ctx, h.grant.Lease) }

// StayTaken keeps the name taken as a release does before MinHold has passed.
func (h *Hold) StayTaken() { h.removal.stayTaken() }

// AcquireSet is holdtest.AcquireSet.
func AcquireSet(ctx context.Context, queues queue.Set, r Request) ([]*Hold, error) {
	grants, err := queues.Acquire(ctx, r.Request)
	if err != nil {
		return nil, err
	}
	return Begin(grants, r), nil
}
