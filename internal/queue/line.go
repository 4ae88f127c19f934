package queue

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// lines are the lines of a session. In a line goroutines of one session wait for the same name, in the order of their
// calls. Only its head has an entry in etcd, or is about to put it. The others cost the cluster nothing.
type lines struct {
	mu  sync.Mutex // protects all, the fields of each line, and those of each ticket from rev on
	all map[lineKey]*line
}

// lineKey tells lines apart.
type lineKey struct {
	entries string
	alone   *ticket // nil: the shared line of this queue
}

// line has a head until it is forgotten.
type line struct {
	lines   *lines
	key     lineKey
	head    *ticket
	waiting list.List // of *ticket; a list, so canceling takes as long in a line of any length
}

// ticket is one caller's place in a line.
type ticket struct {
	q       *Queue // as this caller named it
	request Request
	inSet   bool     // of a Set of several queues
	attempt *attempt // set before the turn: whose entry the previous head has put for this caller; or nil

	// alone: the ticket has a line of its own. If readers shared an entry, we'd have to count them, and late readers
	// would pass a waiting writer. A session holds several permits of a semaphore at a time. And goroutines in several
	// lines, for the queues of a Set, could wait for each other for ever.
	alone bool

	rev int64 // create revision of its entry, for those in the line behind it; 0: not known

	teller *teller // of the caller's place; a Set's tickets share it; nil without OnWait

	line     *line
	turn     chan struct{} // buffered; receives once, when the ticket becomes the head
	canceled bool          // the caller has gone
	at       *list.Element // in line.waiting
}

// newTicket returns the ticket of a caller. It has no place before join.
func newTicket(q *Queue, r Request) *ticket {
	t := &ticket{q: q, request: r, alone: q.Reader || q.limit != 0}
	if r.OnWait != nil {
		t.teller = new(teller)
	}
	return t
}

// join puts a ticket at the end of the line of its queue. If the line was empty, the ticket is the head, and has its
// turn at once. With ifEmpty, join does nothing and reports false unless the line was empty.
func (s *lines) join(t *ticket, ifEmpty bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := lineKey{entries: t.q.At.Entries}
	if t.alone {
		k.alone = t
	}
	ln := s.all[k]
	if ln != nil && ifEmpty {
		return false
	}
	t.turn = make(chan struct{}, 1)
	if ln != nil {
		t.line, t.at = ln, ln.waiting.PushBack(t)
		return true
	}
	if s.all == nil {
		s.all = make(map[lineKey]*line)
	}
	t.line = &line{lines: s, key: k, head: t}
	s.all[k] = t.line
	t.turn <- struct{}{}
	return true
}

// length returns how many are in the shared line of a queue.
func (s *lines) length(entries string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := s.all[lineKey{entries: entries}]
	if ln == nil {
		return 0
	}
	return 1 + ln.waiting.Len()
}

// cancel takes a caller out of the line. It reports false if the ticket has become the head: then its turn is in the
// channel, and the caller must end it.
func (t *ticket) cancel() bool {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	if t.line.head == t {
		return false
	}
	t.canceled = true           // the head may have taken it off the list, and may be putting its entry right now
	t.line.waiting.Remove(t.at) // does nothing if it was taken off the list
	return true
}

// ahead returns the head of the line and how many are ahead of the ticket, itself not among them. It does not count
// further than most. The head is nil if the line was forgotten.
func (t *ticket) ahead(most int) (head *ticket, n int) {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	if head = t.line.head; head == nil || head == t {
		return head, 0
	}
	n = 1
	for el := t.at.Prev(); el != nil && n < most; el = el.Prev() {
		n++
	}
	return head, n
}

// isLast reports whether no ticket waits behind t, the head.
func (t *ticket) isLast() bool {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	return t.line.waiting.Len() == 0
}

// takeFirst takes the first ticket behind the head off the list; nil if none waits. The caller passes the turn to it,
// or takes the next one.
func (t *ticket) takeFirst() *ticket {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	return t.line.takeFirstLocked()
}

func (ln *line) takeFirstLocked() *ticket {
	front := ln.waiting.Front()
	if front == nil {
		return nil
	}
	return ln.waiting.Remove(front).(*ticket)
}

// passTurn makes t the head. It reports false if t was canceled.
func (t *ticket) passTurn() bool {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	return t.passTurnLocked()
}

func (t *ticket) passTurnLocked() bool {
	if t.canceled {
		return false
	}
	t.line.head = t
	t.turn <- struct{}{}
	return true
}

// next ends the turn of the head: the first waiting ticket becomes the head. If none waits, the line is forgotten.
func (t *ticket) next() {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	ln := t.line
	if first := ln.takeFirstLocked(); first != nil {
		first.passTurnLocked() // it is not canceled: those are not in the list
		return
	}
	ln.head = nil
	delete(ln.lines.all, ln.key)
}

// awaitTurn waits until t is the head, and tells its caller the place meanwhile. After an error the caller cancels t.
func (t *ticket) awaitTurn(ctx context.Context) error {
	t.tell(t.place)
	select {
	case <-t.turn:
		return nil
	case <-ctx.Done():
		err := fmt.Errorf("%w; queued behind a goroutine of this session, perhaps this one", retry.ContextErr(ctx))
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.GiveUpWait)
		defer cancel()
		return &Error{Place: t.place(patience), Err: err}
	case <-t.q.host.Context().Done():
		return holdfast.ErrClosed
	}
}
