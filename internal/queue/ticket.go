package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/lines"
	"github.com/holdfast-go/holdfast/internal/places"
)

// ticket is one caller's place in a line in memory.
type ticket struct {
	lines.Ticket[*ticket]
	q       *Queue // as this caller named it
	request Request
	inSet   bool     // of a Set of several queues
	attempt *attempt // set before the turn: whose entry the previous head has put for this caller; or nil

	// What its caller and those in the line behind it are told, both protected by shared.mu.
	ahead places.Ahead // the latest that etcd has said
	shown Shown        // what others see of its entry; nil until it holds

	teller    *places.Teller // of the caller's place; a Set's tickets share it
	ownTeller places.Teller
}

// newTicket returns the ticket of a caller, which join gives a place.
func newTicket(q *Queue, r Request) *ticket {
	t := &ticket{q: q, request: r}
	t.Caller, t.Alone, t.teller = t, q.Reader || q.limit != nil, &t.ownTeller
	if lease := q.host.Lease(); lease.Lost() == nil {
		t.Lease = lease
	}
	return t
}

// awaitTurn waits until t is the head. After an error the caller cancels t.
func (t *ticket) awaitTurn(ctx context.Context) error {
	select {
	case <-t.Turn():
		return nil
	case <-ctx.Done():
		err := fmt.Errorf("%w; queued behind another goroutine of this session", backoff.ContextErr(ctx))
		return &places.Error{Place: places.Stale(t.place()), Err: err}
	case <-t.q.host.Context().Done():
		return holdfast.ErrClosed
	}
}

// occupancy returns nil if no goroutine of this session is in the line of q; ErrUnconfirmed if all have returned and
// only the removal of an entry is unconfirmed; otherwise ErrOccupied, with the place.
func (q *Queue) occupancy() error {
	head, length, leftOver, exists := q.shared.lines.Shared(q.At.Entries)
	switch {
	case !exists:
		return nil
	case leftOver:
		return ErrUnconfirmed
	default:
		return &places.Error{Place: head.placeBehind(length), Err: ErrOccupied}
	}
}

// hasOthers reports whether a goroutine of this session, in whatever line, excludes one that uses q.
func (q *Queue) hasOthers() bool {
	excludes := func(head *ticket) bool { return !q.Reader || !head.q.Reader }
	return slices.ContainsFunc(q.shared.lines.Heads(q.At.Entries), excludes)
}
