package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/lines"
	"github.com/holdfast-go/holdfast/internal/places"
	"github.com/holdfast-go/holdfast/internal/txns"
	"github.com/holdfast-go/holdfast/view"
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

// awaitTurn waits until t is the head, and tells its caller the place meanwhile. After an error the caller cancels t.
func (t *ticket) awaitTurn(ctx context.Context) error {
	select {
	case <-t.Turn():
		return nil
	default:
		t.tell(t.place)
	}
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

// sight is what a request that is sent anyway brings along of who is ahead of an entry. The zero sight is of a request
// that brings nothing.
type sight struct {
	t     *ticket
	first int   // of the replies
	rev   int64 // of the entry; 0: all that stand are ahead
}

// look adds to a request that ends the wait of an entry what finds out who is ahead. It adds nothing for an entry that
// holds, that nothing is ahead of, or that the sweeper has found.
func (w *wait) look(ask *txns.Ops) sight {
	if w.e.stage != placed || w.ahead == nil {
		return sight{}
	}
	return w.e.ticket.look(ask, w.e.rev)
}

// lookToTell adds to a read of an entry that waits, and was created at rev, what its caller wants to be told.
func (t *ticket) lookToTell(ask *txns.Ops, rev int64) sight {
	if t == nil || t.request.OnWait == nil {
		return sight{}
	}
	return t.look(ask, rev)
}

// look adds what finds out who is ahead of an entry that was created at rev; 0: who is in the queue.
func (t *ticket) look(ask *txns.Ops, rev int64) sight {
	if t == nil {
		return sight{}
	}
	look := places.Look(t.q.Scope, rev)
	return sight{t, ask.Add(look[0], look[1], t.q.shared.getEpoch), rev}
}

// saw reads the replies.
func (s sight) saw(r txns.Reply) {
	if s.t != nil {
		s.t.saw(places.Read(s.t.q.Scope, r, s.first, s.rev, r.Range(s.first+2).Kvs))
	}
}

// saw records what is ahead of the entry, for its caller and for those in the line
// behind it.
func (t *ticket) saw(a places.Ahead) {
	s := t.q.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	t.ahead = a
}

// place returns the place of a ticket in its line.
func (t *ticket) place() view.Place {
	head, inLine, exists := t.Line(view.MaxAhead)
	if !exists {
		return view.Place{}
	}
	return head.placeBehind(inLine)
}

// placeBehind returns the place of a caller who has that many ahead in the line, of which t is the head.
func (t *ticket) placeBehind(inLine int) view.Place {
	t.q.shared.mu.Lock()
	a, shown := t.ahead, t.shown
	t.q.shared.mu.Unlock()
	p := a.Place(t.q.Scope)
	if inLine == 0 {
		return p
	}
	if shown != nil {
		if holder, ok := shown.Shown(); ok {
			p = view.Place{Holder: holder, Seen: time.Now()}
		}
	}
	p.Ahead = min(p.Ahead+inLine, view.MaxAhead)
	if !p.Known() {
		p.Seen = time.Now() // the line is known
	}
	return p
}

// tell tells the caller of a ticket its place.
func (t *ticket) tell(place func() view.Place) { t.teller.Tell(t.q.host, t.request.OnWait, place) }

// tell tells the caller the place of an entry that waits.
func (w *wait) tell(ctx context.Context) {
	t := w.e.ticket
	if t == nil || ctx.Err() != nil {
		return
	}
	t.tell(func() view.Place {
		if w.ahead == nil {
			return t.named(view.Place{Seen: time.Now()})
		}
		return t.knownAhead()
	})
}

// knownAhead returns what is known of the entries ahead of a caller who is the head.
func (t *ticket) knownAhead() view.Place {
	t.q.shared.mu.Lock()
	a := t.ahead
	t.q.shared.mu.Unlock()
	return t.named(a.Place(t.q.Scope))
}

// named adds to a place of which queue it is, if the caller waits in several.
func (t *ticket) named(p view.Place) view.Place {
	if t.inSet && p.Known() {
		p.Name = t.q.At.Name
	}
	return p
}
