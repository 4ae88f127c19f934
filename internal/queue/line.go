package queue

import (
	"container/list"
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/places"
)

// line is where the goroutines of one session wait that want the same name, in
// order of call. Only the head has an entry in etcd, or is about to put one. The
// others cost the cluster nothing.
//
// A reader is alone in a line of its own: one entry for several readers would have
// to be shared by counting, and then late readers would pass a waiting writer. So is
// a permit of a semaphore, of which several are held at a time, and each member of a
// Set: goroutines that waited for each other in several lines could wait for ever.
type line struct {
	shared  *shared
	q       *Queue
	key     lineKey
	head    *ticket
	waiting list.List // of *ticket; a list, so that canceling takes as long in a line of any length

	// shown is what others in the line see of the head's entry; nil until the head holds.
	shown Shown

	// returned is a head whose caller has returned although etcd has not
	// confirmed that its entry is gone.
	returned *ticket

	// For requeued, written by the head: the lease of the latest entry, and the
	// latest lease under which an entry of the line was held.
	entered, heldUnder *lease.Lease
}

// lineKey tells the lines of a session apart.
type lineKey struct {
	entries string
	alone   *ticket // nil: the line that all others share
}

// ticket is one caller's place in a line.
type ticket struct {
	q         *Queue // as this caller named it
	request   Request
	alone     bool           // in a line of its own
	inSet     bool           // of a Set of several queues
	lease     *lease.Lease   // the session's when the ticket was taken; nil if that was lost
	turn      chan *attempt  // buffered; receives once, when the ticket becomes the head: see grant
	canceled  bool           // the caller has gone
	place     *list.Element  // in waiting
	ahead     places.Ahead   // the latest that etcd has said
	teller    *places.Teller // of the caller's place; a Set's tickets share it
	ownTeller places.Teller
}

// turn is a ticket that is the head of its line.
type turn struct {
	line   *line
	ticket *ticket
}

// newTicket returns the ticket of a caller, which join gives a place.
func newTicket(q *Queue, r Request) *ticket {
	t := &ticket{q: q, request: r, alone: q.Reader || q.limit != nil, turn: make(chan *attempt, 1)}
	t.teller = &t.ownTeller
	if lease := q.host.Lease(); lease.Lost() == nil {
		t.lease = lease
	}
	return t
}

// join puts a ticket at the end of its line. If the line was empty, the ticket is
// the head and has its turn at once, with no entry. With ifEmpty, join returns nil
// and does nothing unless the line was empty.
func (s *shared) join(t *ticket, ifEmpty bool) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := lineKey{entries: t.q.At.Entries}
	if t.alone {
		key.alone = t
	}
	ln := s.lines[key]
	switch {
	case ln == nil:
		ln = &line{shared: s, q: t.q, key: key, head: t}
		s.lines[key] = ln
		t.turn <- nil
	case ifEmpty:
		return nil
	default:
		t.place = ln.waiting.PushBack(t)
	}
	return ln
}

// awaitTurn waits until t is the head, and returns the attempt whose entry the previous
// head has put for it, or nil. After an error the caller cancels t.
func (ln *line) awaitTurn(ctx context.Context, t *ticket) (a *attempt, err error) {
	closed := ln.shared.host.Context().Done()
	select {
	case a := <-t.turn:
		return a, nil
	case <-ctx.Done():
		err = fmt.Errorf("%w; queued behind another goroutine of this session", backoff.ContextErr(ctx))
		err = &places.Error{Place: places.Stale(ln.place(t)), Err: err}
	case <-closed:
		err = holdfast.ErrClosed
	}
	return nil, err
}

// cancel takes a caller that gives up out of the line. It reports false if t has become the head: then
// its turn is in the channel, and the caller must end it.
func (ln *line) cancel(t *ticket) bool {
	ln.shared.mu.Lock()
	defer ln.shared.mu.Unlock()
	if ln.head == t {
		return false
	}
	t.canceled = true          // handOff may be putting an entry for t right now
	ln.waiting.Remove(t.place) // does nothing if handOff has taken t out of the list
	return true
}

// occupancy returns nil if no goroutine of this session is in the line of q; ErrUnconfirmed if all have returned and
// only the removal of an entry is unconfirmed; otherwise ErrOccupied, with the place.
func (s *shared) occupancy(q *Queue) error {
	s.mu.Lock()
	ln := s.lines[lineKey{entries: q.At.Entries}]
	unconfirmed := ln != nil && ln.leftOver()
	s.mu.Unlock()
	switch {
	case ln == nil:
		return nil
	case unconfirmed:
		return ErrUnconfirmed
	default:
		return &places.Error{Place: ln.place(nil), Err: ErrOccupied}
	}
}

// leftOver reports whether all callers in the line have returned. The lock of the
// session's lines is held.
func (ln *line) leftOver() bool {
	return ln.returned != nil && ln.returned == ln.head && ln.waiting.Len() == 0
}

// hasOthers reports whether a goroutine of this session, in whatever line, excludes one that
// uses q.
func (s *shared) hasOthers(q *Queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, ln := range s.lines {
		if key.entries == q.At.Entries && !(q.Reader && ln.q.Reader) && !ln.leftOver() {
			return true
		}
	}
	return false
}

// callerReturned records that the caller of e returns although etcd has not
// confirmed that e is gone.
func (ln *line) callerReturned(e *entry) {
	ln.shared.mu.Lock()
	defer ln.shared.mu.Unlock()
	ln.returned = e.ticket
}

// enter adds an entry for t to an attempt. The attempt is requeued if the session has lost a lease since t joined,
// unless another caller in the line has held since then, which means that the lock delay is over.
func (ln *line) enter(a *attempt, t *ticket) {
	before := t.lease
	if before == nil {
		before = ln.entered
	}
	ln.entered = a.lease
	e := a.newEntry(t.q)
	e.ticket, e.value = t, t.q.entryValue(t.request)
	a.entries = append(a.entries, e)
	if before != nil && before != a.lease && ln.heldUnder != a.lease {
		a.requeued = true
	}
}

// takeFirst takes the first ticket off the list; nil if none waits.
func (ln *line) takeFirst() *ticket {
	ln.shared.mu.Lock()
	defer ln.shared.mu.Unlock()
	return ln.takeFirstLocked()
}

func (ln *line) takeFirstLocked() *ticket {
	front := ln.waiting.Front()
	if front == nil {
		return nil
	}
	return ln.waiting.Remove(front).(*ticket)
}

// headAlone reports whether no ticket waits behind the head.
func (ln *line) headAlone() bool {
	ln.shared.mu.Lock()
	defer ln.shared.mu.Unlock()
	return ln.waiting.Len() == 0
}

// grant makes t the head, which starts from the attempt whose entry was put for it, or from
// nothing. It reports false if t was canceled.
func (ln *line) grant(t *ticket, a *attempt) bool {
	ln.shared.mu.Lock()
	defer ln.shared.mu.Unlock()
	return ln.grantLocked(t, a)
}

func (ln *line) grantLocked(t *ticket, a *attempt) bool {
	if t.canceled {
		return false
	}
	ln.head, ln.shown = t, nil
	t.turn <- a
	return true
}

// next ends the head's turn, whose entry is gone: the first that waits becomes the
// head and starts from nothing. If none waits, the line is forgotten.
func (ln *line) next() {
	ln.shared.mu.Lock()
	defer ln.shared.mu.Unlock()
	for t := ln.takeFirstLocked(); t != nil; t = ln.takeFirstLocked() {
		if ln.grantLocked(t, nil) {
			return
		}
	}
	ln.head = nil
	delete(ln.shared.lines, ln.key)
}
