package queue

import (
	"container/list"
	"sync"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// lines are what one session keeps of all its queues.
type lines struct {
	mu   sync.Mutex       // protects open, and head, waiting and left below
	open map[string]*line // by entries prefix; a line with no head is not here

	audit   auditor
	commits committer
	streams streams
	keys    keys
	sweeper sweeper
	census  census
}

type linesKey struct{}

func linesOf(s lease.Host) *lines {
	return s.Extension(linesKey{}, func() any {
		ls := &lines{
			open: make(map[string]*line), audit: auditor{sess: s}, commits: committer{sess: s},
			sweeper: sweeper{sess: s}, census: census{sess: s, wake: make(chan struct{}, 1)},
		}
		s.BeforeRevoke(ls.beforeRevoke)
		return ls
	}).(*lines)
}

// line is the local end of one queue: the goroutines of one session that want
// the same name. Only the head has an entry in etcd, or is about to; the
// others wait here, in order of call, and cost the cluster nothing.
type line struct {
	all      *lines
	q        *Queue
	head     *ticket
	returned *ticket   // of a caller that has returned before its entry was confirmed to be gone
	waiting  list.List // of *ticket; a list, so that leaving costs the same in a line of any length

	entered *lease.Lease // of the latest entry; this and held are the head's
	held    *lease.Lease // under which one of the line was granted
}

// ticket is one caller's place in a line.
type ticket struct {
	q     *Queue // as its caller named it
	value func() string
	under *lease.Lease  // the session's when the ticket was taken; nil: it had none
	turn  chan turn     // buffered; sent to once, when the ticket becomes the head
	left  bool          // its caller has gone
	place *list.Element // in waiting
}

// enter makes a ticket's entry under a lease. It is anew if the session has lost a
// lease since the ticket was taken, unless another of the line has waited for the
// lock delay since.
func (ln *line) enter(t *ticket, lease *lease.Lease) *entry {
	before := t.under
	if before == nil {
		before = ln.entered
	}
	e := newEntry(t.q, lease, t.value())
	e.ticket = t
	e.anew = before != nil && before != lease && ln.held != lease
	ln.entered = lease
	return e
}

// turn is what a new head starts from: an entry that its predecessor put for
// it when leaving, or nil and it has to put its own.
type turn struct{ entry *entry }

// ticket makes a ticket, which join gives a place.
func (q *Queue) ticket(value func() string) *ticket {
	q.local.census.used(q)
	t := &ticket{q: q, value: value, turn: make(chan turn, 1)}
	if lease := q.sess.Lease(); lease.Lost() == nil {
		t.under = lease
	}
	return t
}

// join puts a ticket at the end of its line, which it returns. With ifFree it
// does not, and returns nil, unless the line is empty.
func (ls *lines) join(t *ticket, ifFree bool) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.open[t.q.entries]
	if ln == nil {
		ln = &line{all: ls, q: t.q}
		ls.open[t.q.entries] = ln
	} else if ifFree {
		return nil
	}
	if ln.head == nil {
		ln.head = t
		t.turn <- turn{}
	} else {
		t.place = ln.waiting.PushBack(t)
	}
	return ln
}

// busy returns nil if no goroutine of this session is in the line of q,
// ErrUnconfirmed if all have returned and only the removal of an entry is not
// confirmed, and otherwise ErrOccupied.
func (ls *lines) busy(q *Queue) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch ln := ls.open[q.entries]; {
	case ln == nil:
		return nil
	case ln.returned != nil && ln.returned == ln.head && ln.waiting.Len() == 0:
		return ErrUnconfirmed
	default:
		return ErrOccupied
	}
}

// callerReturned notes that the caller that e was put for has returned while
// etcd has not confirmed that e is gone.
func (ln *line) callerReturned(e *entry) {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	ln.returned = e.ticket
}

// leave gives a ticket back. If that is too late, because it is the head by
// now, it reports false: the turn is in the channel and has to be ended.
func (ln *line) leave(t *ticket) bool {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	if ln.head == t {
		return false
	}
	t.left = true              // for handOff, which may be putting an entry for it now
	ln.waiting.Remove(t.place) // does nothing if first has taken it off
	return true
}

// first takes the first ticket off the line; nil when nobody waits.
func (ln *line) first() *ticket {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	return ln.firstLocked()
}

func (ln *line) firstLocked() *ticket {
	front := ln.waiting.Front()
	if front == nil {
		return nil
	}
	return ln.waiting.Remove(front).(*ticket)
}

// alone reports whether nobody waits behind the head.
func (ln *line) alone() bool {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	return ln.waiting.Len() == 0
}

// promote makes t the head with what it starts from. It reports false when t
// has left.
func (ln *line) promote(t *ticket, with turn) bool {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	return ln.promoteLocked(t, with)
}

func (ln *line) promoteLocked(t *ticket, with turn) bool {
	if t.left {
		return false
	}
	ln.head = t
	t.turn <- with
	return true
}

// advance promotes the first that is still there, to start from nothing, or
// closes the line.
func (ln *line) advance() {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	for t := ln.firstLocked(); t != nil; t = ln.firstLocked() {
		if ln.promoteLocked(t, turn{}) {
			return
		}
	}
	ln.head = nil
	delete(ln.all.open, ln.q.entries)
}
